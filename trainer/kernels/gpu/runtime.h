#pragma once

// The runtime of the GPU that this is compiled for, under the names that CUDA has for it: CUDA's by nvcc, HIP's by
// hipcc, or the tests' shim, which runs everything on the host (testing/cuda_shim.h).
#if defined(ATOLL_GPU_SHIM)
#include "trainer/kernels/gpu/testing/cuda_shim.h"
// After the runtime that it is declared with.
#include "trainer/kernels/gpu/testing/cublas_lt_shim.h"
#elif defined(__HIP__)
#include "trainer/kernels/gpu/hip_names.h"
#else
#include <cublasLt.h>
#include <cuda_runtime.h>
#endif

#include <memory>
#include <string>
#include <type_traits>

#include "shared/base/check.h"

namespace atl::kernels::gpu {

// Ends the program when a call failed that only a broken device, driver or kernel lets fail: what an operation was
// asked for earlier may show here.
inline void must(cudaError_t status, const char* what) {
    if (status != cudaSuccess) check(false, std::string("the GPU failed: ") + what + ": " + cudaGetErrorString(status));
}

// One object of the runtime, destroyed by Destroy.
template <class Object, auto Destroy>
struct Destroyer {
    void operator()(Object object) const { static_cast<void>(Destroy(object)); }
};
template <class Object, auto Destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<Object>, Destroyer<Object, Destroy>>;

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

}  // namespace atl::kernels::gpu
