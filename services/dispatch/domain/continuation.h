#pragma once

#include <cstdint>

#include "services/dispatch/domain/task_machine.h"

// A training that outlives its batch job has a continuation: the next attempt's batch job, put into the queue while
// this one runs. An attempt that is cut short makes way for it. Any other end withdraws it first, and its number is
// passed over.
namespace atl::dispatch {

// Whether a training of so many steps, at the pace that it was watched at, takes longer than the attempt's `limit_s`,
// as the last look at it tells. How long it took to begin says nothing of its pace.
bool outlives(const Attempt& attempt, std::int64_t steps, double limit_s);
// The task with the next attempt after this one, which goes on with what this one leaves.
Task continuation_of(Task task);
// Whether the task's attempt is over and its continuation goes on: there is something to watch, or to cancel.
bool is_continued(const Task& task);
// Whether the continuation that was asked for is to be put into the queue now.
bool should_submit_continuation(const Attempt& attempt, std::int64_t now_ms);
// Whether the next attempt's batch job, which waits in the queue, must not run as the task has come from `before` to
// `after`: its training is whole, or this attempt failed.
bool withdraws_continuation(const Task& before, const Task& after);

// What a look at a running training says of its pace, and of its continuation.
void note_pace(Attempt& attempt, const Observed& observed);
void note_continuation(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy,
                       std::int64_t now_ms);

}  // namespace atl::dispatch
