#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace atl::optim {

double Schedule::rate(std::int64_t step) const {
    const std::int64_t done = step - 1;  // steps taken before this one, transformers' "current_step"
    if (done < warmup_steps)
        return peak * static_cast<double>(warms_up_from_zero ? done : step) / static_cast<double>(warmup_steps);
    const double left = static_cast<double>(std::max<std::int64_t>(1, steps - warmup_steps));
    const double progress = static_cast<double>(done - warmup_steps) / left;
    switch (kind) {
        case LrSchedule::kConstant:
            return peak;
        case LrSchedule::kLinear:
            return peak * std::max(0.0, 1.0 - progress);
        case LrSchedule::kCosine:
            return peak * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    }
    return peak;
}

}  // namespace atl::optim
