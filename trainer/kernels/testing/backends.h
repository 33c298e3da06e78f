#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/device.h"
#if defined(ATOLL_GPU_SHIM)
#include "trainer/kernels/gpu/gpu_backend.h"
#endif

// What tests of operations run on: the CPU with each instruction set of this machine, and the GPU's kernels on the
// host.
namespace atl::kernels {

inline constexpr const char* kGpu = "gpu";

inline std::vector<std::string> tested_backends() {
    std::vector<std::string> names = cpu_instruction_sets();
#if defined(ATOLL_GPU_SHIM)
    names.emplace_back(kGpu);
#endif
    return names;
}

inline std::unique_ptr<Backend> make_tested_backend(const std::string& name, int threads = 2) {
#if defined(ATOLL_GPU_SHIM)
    if (name == kGpu) {
        gpu::shim::set_order(0);  // tensors are the tests' own memory, and read at once
        return gpu::GpuBackend::open(0).value();
    }
#endif
    return make_cpu_backend(threads, name).value();
}

// The GPU that this build's tests have: its backend on the shim, where what is free to run goes in an order by the seed
// and the host does not reach device memory; or this machine's GPU, null where there is none.
inline std::unique_ptr<Backend> open_tested_gpu([[maybe_unused]] std::uint64_t seed) {
#if defined(ATOLL_GPU_SHIM)
    gpu::shim::set_order(seed);
    return gpu::GpuBackend::open(0).value();
#else
    auto backend = make_gpu_backend(std::string(gpu_device()), 0);
    return backend.ok() ? std::move(backend).value() : nullptr;
#endif
}

}  // namespace atl::kernels
