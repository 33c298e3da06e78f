#include <cstdlib>

#include "trainer/kernels/device.h"
#include "trainer/kernels/gpu/gpu_backend.h"

namespace atl::kernels {

std::string_view gpu_device() {
#if defined(__HIP__)
    return "hip";
#else
    return "cuda";
#endif
}

Result<std::unique_ptr<Backend>> make_gpu_backend(const std::string& device, int index, bool deterministic) {
    if (device != gpu_device())
        return invalid_argument("device", "'" + device + "' was asked for, and this build computes on cpu and " +
                                              std::string(gpu_device()));
    const char* const graphs = std::getenv("ATOLL_GPU_GRAPHS");  // "off": to find out whether they are to blame
    return gpu::GpuBackend::open(
        index, {.graphs = graphs == nullptr || std::string_view(graphs) != "off", .deterministic = deterministic});
}

std::string gpu_card(int index) {
    return gpu::describe_card(index);
}

int visible_gpus() {
    const auto count = gpu::count_devices();
    return count.ok() ? *count : 0;
}

}  // namespace atl::kernels
