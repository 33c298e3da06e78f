#include "trainer/optim/loss_scale.h"

namespace atl::optim {

void LossScale::step_was_good() {
    if (++good_steps < kGrowthInterval) return;
    scale *= 2;
    good_steps = 0;
}

void LossScale::step_was_skipped() {
    scale /= 2;
    good_steps = 0;
    ++skipped;
}

}  // namespace atl::optim
