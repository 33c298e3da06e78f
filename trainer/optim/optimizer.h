#pragma once

#include <cstdint>
#include <span>

#include "shared/run_settings/choices.h"
#include "trainer/kernels/backend.h"

namespace atl::optim {

using run_settings::OptimizerKind;

// AdamW (Loshchilov & Hutter, arXiv:1711.05101) or SGD with momentum, both with decoupled weight decay, on flat
// ranges: any rank may update any part of a parameter, since no element's update depends on another's. With Muon
// (optim/muon.h) it is AdamW, of what Muon does not drive.
struct Optimizer {
    OptimizerKind kind = OptimizerKind::kAdamW;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    double momentum = 0;  // SGD's or Muon's

    // How many numbers it keeps a weight: 2, 1 or 0. They start as zeros.
    int moment_count() const;

    // One step on these ranges, by the step's scalars (kernels::StepScalars). The moments beyond moment_count() are
    // empty.
    void update(kernels::Backend& backend, const tensor::Tensor& scalars, double learning_rate,
                std::span<const kernels::OptimizerRange> ranges) const;
};

}  // namespace atl::optim
