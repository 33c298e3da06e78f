#pragma once

#include <cstdint>

#include "shared/run_settings/choices.h"
#include "trainer/kernels/backend.h"

namespace atl::optim {

using run_settings::OptimizerKind;

// AdamW (Loshchilov & Hutter, arXiv:1711.05101) or SGD with momentum, both with decoupled weight decay, on flat
// ranges: any rank may update any part of a parameter, since no element's update depends on another's.
struct Optimizer {
    OptimizerKind kind = OptimizerKind::kAdamW;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    double momentum = 0;

    // How many numbers it keeps a weight: 2, 1 or 0. They start as zeros.
    int moment_count() const;

    // One step on a range. `gradient_scale` multiplies the gradients first. The moments beyond moment_count() are
    // empty. `step` counts from 1.
    void update(kernels::Backend& backend, std::int64_t step, double learning_rate, double gradient_scale, bool decay,
                const kernels::OptimizerRange& range) const;
};

// What gradients of that norm are multiplied by so that it is at most norm_max, as torch.nn.utils.clip_grad_norm_
// computes it; 1 when norm_max is 0.
double clip_factor(double norm, double norm_max);

}  // namespace atl::optim
