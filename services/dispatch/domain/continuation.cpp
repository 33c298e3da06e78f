#include "services/dispatch/domain/continuation.h"

namespace atl::dispatch {
namespace {

constexpr double kTimeToSpare = 0.9;  // of a batch job's: no pace stays quite what it was
constexpr double kWatchedMin = 0.05;  // of a batch job's time: the first steps are slow

double seconds_between(std::int64_t from_ms, std::int64_t to_ms) {
    return static_cast<double>(to_ms - from_ms) / 1000;
}

}  // namespace

bool outlives(const Attempt& attempt, std::int64_t steps, double limit_s) {
    if (limit_s <= 0 || !attempt.last_step || attempt.step != Step::kRunning || attempt.paced_from_ms == 0)
        return false;
    const double watched_s = seconds_between(attempt.paced_from_ms, attempt.looked_ms);
    const std::int64_t left = steps - attempt.last_step->step;
    if (watched_s < limit_s * kWatchedMin || left < 1) return false;
    // The step under way counts as made, so that no pace seems slower than it is.
    const std::int64_t made = attempt.last_step->step - attempt.paced_from_step + 1;
    const double to_come_s = watched_s * static_cast<double>(left) / static_cast<double>(made);
    return seconds_between(attempt.since_ms, attempt.looked_ms) + to_come_s > limit_s * kTimeToSpare;
}

Task continuation_of(Task task) {
    const std::int64_t number = task.attempt->number + 1;
    task.attempt = Attempt();
    task.attempt->number = number;
    return task;
}

bool is_continued(const Task& task) {
    return task.state == TaskState::kPending && task.attempt && !task.attempt->continuation.empty() &&
           task.attempt->step != Step::kFailed;
}

bool withdraws_continuation(const Task& before, const Task& after) {
    if (!before.attempt || before.attempt->continuation.empty() || before.attempt->step == Step::kCollecting)
        return false;
    return after.attempt->step == Step::kCollecting || after.attempt->step == Step::kFailed;
}

bool should_submit_continuation(const Attempt& attempt, std::int64_t now_ms) {
    return attempt.continuation == kAskedFor &&
           (!attempt.continuation_waiting || is_over(*attempt.continuation_waiting, now_ms));
}

// What a first look finds after a long time, part by part, says nothing of when it was made. After the clock was set
// back it begins anew.
void note_pace(Attempt& attempt, const Observed& observed) {
    const bool is_known = attempt.paced_from_ms != 0 && attempt.paced_from_ms <= observed.looked_ms;
    if (is_known || !attempt.last_step || !observed.log_is_drained) return;
    attempt.paced_from_step = attempt.last_step->step;
    attempt.paced_from_ms = observed.looked_ms;
}

void note_continuation(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy,
                       std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    if (!observed.continuation.empty()) {
        attempt.continuation = observed.continuation;
        attempt.continuation_waiting.reset();
    }
    if (!observed.no_continuation.empty()) {
        const std::int64_t since_ms = attempt.continuation_waiting ? attempt.continuation_waiting->since_ms : 0;
        attempt.continuation_waiting =
            wait_longer(since_ms, observed.no_continuation, now_ms, poll_policy.retry_ms, poll_policy.retry_ms_max);
    }
    if (!observed.outlives_its_time || !attempt.continuation.empty()) return;
    attempt.continuation = kAskedFor;
    change.next_in_ms = 0;  // it is put into the queue
    change.is_news = true;
}

}  // namespace atl::dispatch
