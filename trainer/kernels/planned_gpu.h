#pragma once

#include <cstdint>
#include <memory>

#include "trainer/kernels/backend.h"

namespace atl::kernels {

// A GPU that is not here, as far as plans of memory need to know it.
struct PlannedGpu {
    int architecture = 0;           // 90 for sm_90
    std::int64_t memory_bytes = 0;  // all, as its driver says it
    std::int64_t driver_bytes = 0;  // of it, what the driver takes of a process
    bool deterministic = false;     // as of make_gpu_backend()
};

// Answers what a layout of memory asks, by the code of the GPU's backend: attention's workspace is cuDNN's by a rule
// (gpu/cudnn_workspace.h) or that of products, whatever is more, as it is on a GPU. It has no memory to give, and
// asking it to compute is a programmer's error. In every build; needs no GPU and no toolkit.
std::unique_ptr<Backend> make_planned_gpu(const PlannedGpu& gpu);
// Whose workspaces the rule has: "cuDNN 9.19.0".
extern const char* const kPlannedAttentionLibrary;

}  // namespace atl::kernels
