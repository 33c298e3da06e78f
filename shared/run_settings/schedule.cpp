#include "shared/run_settings/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace atl::run_settings {

double Schedule::rate(std::int64_t step) const {
    const std::int64_t done = steps_before + step - 1;  // steps taken before this one, transformers' "current_step"
    if (done < warmup_steps)
        return peak * static_cast<double>(warms_up_from_zero ? done : done + 1) / static_cast<double>(warmup_steps);
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

double Schedule::sum(std::int64_t count) const {
    constexpr std::int64_t kLookedAtMax = 4096;
    const std::int64_t looked_at = std::min(count, kLookedAtMax);
    Schedule unit = *this;  // so that equal rates come to no more digits than one
    unit.peak = 1;
    double total = 0;
    for (std::int64_t i = 0; i < looked_at; ++i)
        total += unit.rate(1 + static_cast<std::int64_t>((static_cast<double>(i) + 0.5) * static_cast<double>(count) /
                                                         static_cast<double>(looked_at)));
    return looked_at == 0 ? 0 : peak * (total * static_cast<double>(count) / static_cast<double>(looked_at));
}

Schedule schedule_of(const RunConfig& config, std::int64_t steps) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / config.schedule_runs;
    steps = std::min(steps, most);  // where rows are not known yet
    return {.kind = config.schedule,
            .peak = config.lr,
            .warmup_steps = config.warmup_steps,
            .steps = steps * config.schedule_runs,
            .warms_up_from_zero = config.warmup_from_zero == OnOff::kOn,
            .steps_before = steps * (config.schedule_run - 1)};
}

}  // namespace atl::run_settings
