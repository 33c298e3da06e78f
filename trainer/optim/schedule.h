#pragma once

#include <cstdint>

#include "shared/run_settings/choices.h"

namespace atl::optim {

using run_settings::LrSchedule;

// The learning rate of each step, as transformers' get_{constant_schedule_with_warmup,linear_schedule_with_warmup,
// cosine_schedule_with_warmup} give it: a linear rise from 0 over the warm-up, then constant, or down to 0 at `steps`.
// torchtitan's warm-up has no step at rate 0: step k of N has k/N of the peak. It suits runs that begin again and
// again, as the rounds of a federation do.
struct Schedule {
    LrSchedule kind = LrSchedule::kConstant;
    double peak = 0;  // the rate after the warm-up
    std::int64_t warmup_steps = 0;
    std::int64_t steps = 0;          // of the whole run
    bool warms_up_from_zero = true;  // false: as torchtitan

    // Of step `step`, counted from 1.
    double rate(std::int64_t step) const;
};

}  // namespace atl::optim
