#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

// Which GPU a rank takes. The choice is pure: what there is to know comes from the launcher, the environment and the
// backend.
namespace atl::kernels {

// What --device has to say for this build's GPU backend: "cuda" or "hip", "" in a build without one.
std::string_view gpu_device();

// One of the visible GPUs, without starting it: "NVIDIA H200, sm_90, 0000:1B:00.0"; empty where there is none.
std::string gpu_card(int index);

// What that backend's kernels are compiled for: {"sm_80", "sm_90a", "compute_90"}, the last of these PTX for later
// cards, or {"gfx90a"}. Empty in a build without one.
std::vector<std::string> gpu_architectures();

// One of the variables by which a launcher or a batch system says which GPUs a process may see.
struct DeviceVariable {
    std::string name;   // "CUDA_VISIBLE_DEVICES"
    std::string value;  // "0,3"; "" hides all

    // Devices it names, up to the first that is none ("-1", "NoDevFiles"): there CUDA and HIP end the list too.
    int devices() const;
};

// Those of the variables that are set.
std::vector<DeviceVariable> device_variables(const std::function<const char*(const char*)>& environment);

// How to give the host's GPUs to the container that this process runs in: a sentence to follow the reason why there is
// none. Empty outside containers and in unknown ones. Apptainer, Singularity and Podman are known by their variables,
// Docker by its file. `device` is "cuda" or "hip".
std::string container_advice(std::string_view device, const std::function<const char*(const char*)>& environment,
                             const std::function<bool(const char*)>& file_exists);

// What a rank knows when it chooses.
struct RankDevices {
    int local_rank = 0;
    int ranks_on_node = 1;
    int visible = 0;  // devices, as the backend counts them
    std::vector<DeviceVariable> variables;
};

struct DeviceChoice {
    int device = 0;  // among the visible ones
    int ranks = 1;   // of this machine that take it
};

// One visible device: that one; the launcher chose it. Several: that of the local rank, and round again when there are
// more ranks than devices, which then share them. kInvalidArgument, with the variables: none is visible, or fewer than
// every one of them names (one may narrow another's list, or be another vendor's).
Result<DeviceChoice> choose_device(const RankDevices& rank);

}  // namespace atl::kernels
