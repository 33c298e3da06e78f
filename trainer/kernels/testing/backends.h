#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/device.h"
#include "trainer/kernels/testing/far_backend.h"
#if defined(ATOLL_GPU_SHIM)
#include "trainer/kernels/gpu/gpu_backend.h"
#endif

// What tests run on, by name: the CPU with each instruction set of this machine, the CPU as a device that the host does
// not reach, and a GPU.
namespace atl::kernels {

inline constexpr const char* kFar = "far";
inline constexpr const char* kGpu = "gpu";

inline std::vector<std::string> tested_cpu_backends() {
    std::vector<std::string> names = cpu_instruction_sets();
    names.emplace_back(kFar);
    return names;
}

// With the GPU's kernels on the host, or in a build for GPUs this machine's first one, if it has one.
inline std::vector<std::string> tested_backends() {
    std::vector<std::string> names = tested_cpu_backends();
#if defined(ATOLL_GPU_SHIM)
    names.emplace_back(kGpu);
#else
    if (visible_gpus() > 0) names.emplace_back(kGpu);
#endif
    return names;
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

// One of those names; `threads` are a CPU's.
inline std::unique_ptr<Backend> make_tested_backend(const std::string& name, int threads = 2) {
    if (name == kGpu) return open_tested_gpu(1);
    if (name == kFar) return std::make_unique<FarBackend>(make_cpu_backend(threads).value());
    return make_cpu_backend(threads, name).value();
}

}  // namespace atl::kernels
