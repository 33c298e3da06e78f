#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// finish_step() is the same code on every device: compilers of kernels take it for theirs, too.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define ATOLL_ON_HOST_AND_DEVICE __host__ __device__
#else
#define ATOLL_ON_HOST_AND_DEVICE
#endif

namespace atl::kernels {

// A step's numbers, which are made, used and kept on the device, so that no step waits until the host has seen them:
// a tensor fp64 [kStepScalars] that lies as this struct does.
struct StepScalars {
    // Over all ranks, of the gradient that was scaled by the loss scale and one over the nominal targets.
    double loss = 0;  // the sum of the token losses
    double gradient_squares = 0;

    // What finish_step() makes of them.
    double norm = 0;       // of the gradient of the mean loss
    double factor = 1;     // what the optimizer multiplies gradients by: to that of the mean loss, and clipped
    double is_update = 1;  // 0: the optimizer leaves everything as it is

    // Carried from step to step.
    double updates = 0;     // steps that changed the weights, with this one: what the optimizer counts
    double loss_scale = 1;  // of the next step; 1: nothing is scaled
    double good_steps = 0;  // since the loss scale changed
    double skipped = 0;     // steps, of the whole run, those without a target too
    double has_failed = 0;  // 1: the loss or the gradient of this step or one before is not finite; nothing is updated
};
inline constexpr std::int64_t kStepScalars = sizeof(StepScalars) / sizeof(double);

struct StepRules {
    double nominal_targets = 1;  // the gradient was divided by
    double targets = 1;          // that count, over all ranks; 0: there is nothing to learn, and decay alone is no step
    double norm_max = 0;         // the gradient is clipped to; 0: it is not
    bool scales_loss = false;    // fp16
};

// The rules of torch.amp.GradScaler: a gradient that is not finite halves the scale of the loss, and its step is
// skipped; so many steps in a row without one double it. Below the smallest the run has diverged.
inline constexpr double kLossScaleGrowthInterval = 2000;  // steps
inline constexpr double kLossScaleSmallest = 0x1p-14;

// What gradients of that norm are multiplied by so that it is at most norm_max, as torch.nn.utils.clip_grad_norm_
// computes it; 1 when norm_max is 0.
ATOLL_ON_HOST_AND_DEVICE inline double clip_factor(double norm, double norm_max) {
    return norm_max > 0 && norm_max < norm + 1e-6 ? norm_max / (norm + 1e-6) : 1;
}

// From the sums over all ranks, whether and how the optimizer updates.
ATOLL_ON_HOST_AND_DEVICE inline void finish_step(const StepRules& rules, StepScalars& scalars) {
    const double scale = rules.targets > 0 ? rules.nominal_targets / (rules.targets * scalars.loss_scale) : 0;
    scalars.norm = std::sqrt(scalars.gradient_squares) * scale;
    scalars.factor = scale * clip_factor(scalars.norm, rules.norm_max);
    const bool is_finite = std::isfinite(scalars.norm);
    const bool overflows = !is_finite && rules.scales_loss && scalars.loss_scale > kLossScaleSmallest;
    if (!std::isfinite(scalars.loss) || (!is_finite && !overflows)) scalars.has_failed = 1;
    const bool is_empty = rules.targets == 0, is_over = scalars.has_failed != 0;
    scalars.is_update = overflows || is_empty || is_over ? 0 : 1;
    scalars.updates += scalars.is_update;
    if (is_over) return;
    if (is_empty || overflows) ++scalars.skipped;
    if (is_empty || !rules.scales_loss) return;
    if (overflows) {
        scalars.loss_scale /= 2;
        scalars.good_steps = 0;
    } else if (++scalars.good_steps >= kLossScaleGrowthInterval) {
        scalars.loss_scale *= 2;
        scalars.good_steps = 0;
    }
}

}  // namespace atl::kernels
