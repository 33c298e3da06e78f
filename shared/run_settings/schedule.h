#pragma once

#include <cstdint>

#include "shared/run_settings/run_settings.h"

namespace atl::run_settings {

// The learning rate of each step, as transformers' get_{constant_schedule_with_warmup,linear_schedule_with_warmup,
// cosine_schedule_with_warmup} give it: a linear rise from 0 over the warm-up, then constant, or down to 0 at `steps`.
// torchtitan's warm-up has no step at rate 0: step k of N has k/N of the peak. It suits runs that begin again and
// again, as the rounds of a federation do.
struct Schedule {
    LrSchedule kind = LrSchedule::kConstant;
    double peak = 0;  // the rate after the warm-up
    std::int64_t warmup_steps = 0;
    std::int64_t steps = 0;          // of the whole run, or of all runs that go over one schedule
    bool warms_up_from_zero = true;  // false: as torchtitan
    std::int64_t steps_before = 0;   // of the runs before this one

    // Of step `step` of this run, counted from 1.
    double rate(std::int64_t step) const;
    // The sum of the rates of this run's first `count` steps; from 4,096 on of so many that are evenly spaced.
    double sum(std::int64_t count) const;
};

// What the settings say, of a run of so many steps.
Schedule schedule_of(const RunConfig& config, std::int64_t steps);

}  // namespace atl::run_settings
