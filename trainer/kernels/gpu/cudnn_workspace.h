#pragma once

#include <cstdint>
#include <optional>

#include "trainer/kernels/gpu/attention_memory.h"

namespace atl::kernels::gpu {

// The workspace of attention's passes by cuDNN 9.19.0, in bytes, by a rule: cuDNN is not needed. Absent: it has no
// kernel. The rule gives every line of attention_plans.txt, which cuDNN itself planned for an H100 and an A100 (sm_90,
// sm_80) without one being there (cudnn_workspace_test.cpp). For shapes and architectures that are not in the table it
// is the rule of the nearest: sm_86 and sm_89 as sm_80, what is newer than sm_90 as sm_90.
std::optional<std::int64_t> cudnn_workspace_bytes(int architecture, const SdpaKind& kind);
inline constexpr const char* kCudnnOfRule = "cuDNN 9.19.0";

}  // namespace atl::kernels::gpu
