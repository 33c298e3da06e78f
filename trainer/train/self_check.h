#pragma once

#include <functional>
#include <string>

#include "trainer/kernels/backend.h"

namespace atl::train {

// One comparison of what this machine computes with what it should.
struct CheckResult {
    std::string name;
    double error = 0;  // relative
    double tolerance = 0;
    bool ok() const { return error <= tolerance; }  // false for NaN
};

// Matrix products (of one tile, and of several in every transposition; in fp32 and in bf16) against plain fp64 loops,
// and of three tiny models, a Llama and two Qwen3, the loss and the gradient of each parameter against those of the
// same model in fp64 (trainer/reference). One of the models is in bf16: its gradients may be 1.5 times as far off as
// those that the CPU's plainest kernels compute here. kInternal, once all are reported: some are not ok.
Status check_backend(kernels::Backend& backend, const std::function<void(const CheckResult&)>& report);

}  // namespace atl::train
