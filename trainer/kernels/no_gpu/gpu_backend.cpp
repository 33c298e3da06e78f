#include "trainer/kernels/backend.h"
#include "trainer/kernels/device.h"

namespace atl::kernels {

std::string_view gpu_device() {
    return "";
}

Result<std::unique_ptr<Backend>> make_gpu_backend(const std::string& device, int, bool) {
    return invalid_argument("device",
                            "'" + device + "' was asked for, but this build has no GPU backend: use --device cpu");
}

std::string gpu_card(int) {
    return "";
}

int visible_gpus() {
    return 0;
}

}  // namespace atl::kernels
