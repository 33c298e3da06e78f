#pragma once

#include <cstdint>
#include <optional>

#include "trainer/kernels/gpu/attention_memory.h"

namespace atl::kernels::gpu {

// The workspace of attention's passes by cuDNN 9.19.0, in bytes, by a rule: cuDNN is not needed. Absent: it has no
// kernel. The rule gives every line of attention_plans.txt, which cuDNN itself planned for an H100, an A100 and an L40S
// (sm_90, sm_80, sm_89) as their data sheets describe them (cudnn_workspace_test.cpp). A card's other properties do not
// matter: an H200, an A10 and an A100 of 64 GB got the same plans. What is newer than sm_90 is taken for sm_90.
std::optional<std::int64_t> cudnn_workspace_bytes(int architecture, const SdpaKind& kind);
inline constexpr const char* kCudnnOfRule = "cuDNN 9.19.0";

}  // namespace atl::kernels::gpu
