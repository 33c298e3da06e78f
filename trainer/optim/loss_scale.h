#pragma once

#include <cstdint>

namespace atl::optim {

// What the loss is multiplied by before an fp16 run's backward pass, so that small gradients do not vanish; the rules
// are those of torch.amp.GradScaler. A gradient that is not finite halves the scale, and its step is skipped; so many
// steps in a row without one double it.
struct LossScale {
    static constexpr std::int64_t kGrowthInterval = 2000;  // steps
    // Below this the gradients are not finite whatever the scale: the run has diverged.
    static constexpr double kSmallest = 0x1p-14;

    double scale = 1;             // --loss-scale at first; 1: nothing is scaled
    std::int64_t good_steps = 0;  // since the scale changed
    std::int64_t skipped = 0;     // steps, of the whole run, those without a target too

    void step_was_good();
    void step_was_skipped();
    bool operator==(const LossScale&) const = default;
};

}  // namespace atl::optim
