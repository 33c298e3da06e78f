#pragma once

#include "trainer/kernels/backend.h"

namespace atl::parallel {

// Whether every value of a contiguous fp32, fp16 or bf16 tensor is finite. Copies it to the host, a piece at a time:
// for after a failure, or rarely.
bool all_finite(kernels::Backend& backend, const tensor::Tensor& values);

}  // namespace atl::parallel
