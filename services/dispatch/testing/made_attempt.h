#pragma once

#include <string>

#include "services/dispatch/domain/task.h"

namespace atl::dispatch {

// The column `progress` of an attempt that stands at that step, with what a worker would have written there: for tests
// that put rows into the database.
inline json::Json progress_at(const std::string& step) {
    constexpr std::int64_t kNoon_ms = 1'767'268'800'000;  // 2026-01-01T12:00:00Z
    Attempt attempt;
    attempt.since_ms = kNoon_ms;
    if (step == "staging" || step == "collecting") {
        attempt.bytes_done = 7 << 20;
        attempt.bytes_total = 42 << 20;
    } else if (step == "submitting") {
        attempt.waiting = Waiting{"sbatch: Unable to contact slurm controller", kNoon_ms, kNoon_ms + 60'000};
    } else if (step == "queued") {
        attempt.queue_reason = "Resources";
        attempt.queue_reason_since_ms = kNoon_ms;
    } else {
        attempt.last_step = parse_step_line({{"step", 7}, {"loss", 2.5}, {"tokens_per_s", 1234.5}});
    }
    return progress_json(attempt);
}

}  // namespace atl::dispatch
