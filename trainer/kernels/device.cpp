#include "trainer/kernels/device.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>

namespace atl::kernels {
namespace {

// CUDA's, HIP's (which minds CUDA's too), and that of ROCm's runtime below it.
constexpr std::array kVariables = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};

// A number, or the id of a whole device or of a part of one.
bool names_device(std::string_view entry) {
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
    return entry.starts_with("GPU-") || entry.starts_with("MIG-") ||
           (!entry.empty() && entry.front() >= '0' && entry.front() <= '9');
}

std::string list_variables(const std::vector<DeviceVariable>& variables) {
    std::string text;
    for (const DeviceVariable& variable : variables) {
        text += (text.empty() ? "" : ", ") + variable.name + "='" + variable.value + "'";
    }
    return text;
}

}  // namespace

std::vector<std::string> gpu_architectures() {
    std::istringstream words(ATOLL_GPU_ARCHITECTURES);
    return {std::istream_iterator<std::string>(words), {}};
}

int DeviceVariable::devices() const {
    int count = 0;
    std::string_view rest = value;
    for (;;) {
        const std::size_t end = std::min(rest.find(','), rest.size());
        if (!names_device(rest.substr(0, end))) return count;
        ++count;
        if (end == rest.size()) return count;
        rest.remove_prefix(end + 1);
    }
}

std::vector<DeviceVariable> device_variables(const std::function<const char*(const char*)>& environment) {
    std::vector<DeviceVariable> set;
    for (const char* name : kVariables) {
        if (const char* value = environment(name)) set.push_back({name, value});
    }
    return set;
}

std::string container_advice(std::string_view device, const std::function<const char*(const char*)>& environment,
                             const std::function<bool(const char*)>& file_exists) {
    const bool is_cuda = device == "cuda";
    const auto start_with = [&](std::string_view runtime, std::string_view cuda, std::string_view rocm) {
        return "this is a container: on a host with a driver, start it with `" + std::string(runtime) + " " +
               std::string(is_cuda ? cuda : rocm) + "`";
    };
    for (const char* name : {"APPTAINER_CONTAINER", "APPTAINER_NAME"})
        if (environment(name) != nullptr) return start_with("apptainer run", "--nv", "--rocm");
    for (const char* name : {"SINGULARITY_CONTAINER", "SINGULARITY_NAME"})
        if (environment(name) != nullptr) return start_with("singularity run", "--nv", "--rocm");
    const char* const container = environment("container");
    if (container != nullptr && std::string_view(container) == "podman")
        return start_with("podman run", "--device nvidia.com/gpu=all", "--device /dev/kfd --device /dev/dri");
    if (file_exists("/.dockerenv"))
        return start_with("docker run", "--gpus all", "--device /dev/kfd --device /dev/dri");
    return "";
}

Result<DeviceChoice> choose_device(const RankDevices& rank) {
    if (rank.visible == 0) {
        std::string why = list_variables(rank.variables);
        if (rank.variables.empty()) {
            for (const char* name : kVariables) why += (why.empty() ? "none of " : ", ") + std::string(name);
            why += " is set";
        }
        return invalid_argument("device", "no device is visible: " + why);
    }
    // What each of the variables leaves; 0 without any.
    const int named =
        rank.variables.empty() ? 0 : std::ranges::min(rank.variables, {}, &DeviceVariable::devices).devices();
    if (rank.visible < named) {
        return invalid_argument("device", "visible devices: " + std::to_string(rank.visible) + ", fewer than " +
                                              list_variables(rank.variables) + " says");
    }
    const bool pinned = rank.visible == 1 && named == 1;  // other ranks may have been given other devices
    const int device = rank.local_rank % rank.visible;
    const int rounds = (rank.ranks_on_node - device + rank.visible - 1) / rank.visible;
    return DeviceChoice{device, pinned ? 1 : rounds};
}

}  // namespace atl::kernels
