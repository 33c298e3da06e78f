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

// One of the variables by which a launcher or a batch system says which GPUs a process may see.
struct DeviceVariable {
    std::string name;   // "CUDA_VISIBLE_DEVICES"
    std::string value;  // "0,3"; "" hides all

    // Devices it names, up to the first that is none ("-1", "NoDevFiles"): there CUDA and HIP end the list too.
    int devices() const;
};

// Those of the variables that are set.
std::vector<DeviceVariable> device_variables(const std::function<const char*(const char*)>& environment);

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
