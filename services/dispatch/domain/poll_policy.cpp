#include <algorithm>

#include "services/dispatch/domain/task_machine.h"

// How often an attempt is looked at, and its batch system asked.
namespace atl::dispatch {

std::int64_t poll_interval_ms(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms) {
    const std::int64_t soon = std::clamp(poll_policy.batch_poll_ms, poll_policy.poll_ms, poll_policy.poll_ms_max);
    return std::clamp((now_ms - attempt.since_ms) / 3, poll_policy.poll_ms,
                      attempt.queue_misses > 0 ? soon : poll_policy.poll_ms_max);  // is it really gone?
}

std::int64_t batch_interval_ms(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms) {
    return std::max(poll_policy.batch_poll_ms,
                    (attempt.queue_misses > 0 ? 1 : 2) * poll_interval_ms(attempt, poll_policy, now_ms));
}

bool should_ask_batch(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms) {
    const std::int64_t age_ms = now_ms - attempt.batch_asked_ms;
    return age_ms >= batch_interval_ms(attempt, poll_policy, now_ms) || age_ms < 0;  // the clock was set back
}

}  // namespace atl::dispatch
