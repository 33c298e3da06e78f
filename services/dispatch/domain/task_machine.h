#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/dispatch/domain/batch_state.h"
#include "services/dispatch/domain/evaluation_result.h"
#include "services/dispatch/domain/task.h"

// What becomes of a task when a step gave its answer: pure functions, no clock, no database.
//
//   staging → submitting → queued → running → collecting → done
//
// A step that says nothing (Unreachable) is repeated for as long as it takes; one that says no (Rejected) is repeated a
// few times, then fails the attempt; a failed attempt makes a new one until attempts_max. Trouble on the way says
// nothing: only a word about what is staged, watched or registered ends an attempt, and while a training is collecting
// only a refusal of its very update, as what has been trained is not trained again.
namespace atl::dispatch {

// Moving: a step that moves data goes on at the site.
struct Staged {
    std::int64_t bytes = 0;  // that were brought for the attempt
};
struct Submitted {
    std::string batch_id;
};
// What a submitted attempt has come to.
struct Observed {
    bool started = false;
    std::optional<std::int64_t> exit_code;  // from end.json
    std::vector<std::string> lines;         // new lines of stdout.jsonl
    std::int64_t log_offset = 0;            // after them
    bool log_is_drained = true;             // no more lines were there
    std::int64_t looked_ms = 0;             // when the look was asked for
    std::string stderr_tail;                // why, when it ended with a failure: failure_text()
    bool is_of_site = false;                // the site's fault: a full disk or quota, a container that does not start
    bool was_away = false;  // what its program did not find in the work directory is there now, or is staged again
    ModelFailures model_failures = {};        // of an evaluation, as far as they are known
    bool is_out_of_memory = false;            // a log of its says that it was ended for want of memory
    std::int64_t free_kib = -1;               // in the facility's work directory; -1: not known
    std::string batch_tail;                   // the end of batch.log, of a job that ended without a record of its own
    std::optional<BatchAnswer> queue_status;  // when the batch system was asked, also of a job with an exit code,
    std::int64_t batch_asked_ms = 0;          // at this time
    bool outlives_its_time = false;           // its batch job will be over before its training is: outlives()
    std::string no_queue_status;              // why the batch system, which was asked, gave no answer;
    bool is_batch_system_silent = false;      // it answers nobody: what its facility waits for, not this task
    std::string continuation;                 // the id of the next attempt's batch job, when it was put into the queue,
    std::string no_continuation;              // or why that could not be done
    std::string no_step;                      // why a training that runs makes no first step, as far as its ranks say
};
struct Collected {
    json::Json result;
    std::int64_t bytes = 0;  // of the update that was handed in
};
struct Cancelled {};  // cancelled, and no process of it lives
struct HeldBack {};   // its job is paused, and nothing of the attempt is at the site
struct Unreachable {
    std::string why;
    bool is_of_facility = false;      // it stands in the way of everything there: no connection, no work directory
    std::int64_t retry_ms = 0;        // after which to try again each time; 0: after pauses that grow
    bool is_of_batch_system = false;  // its facility's batch system answers nobody
};
struct Rejected {
    std::string why;
    bool is_permanent = false;  // the input is wrong; repeating cannot help
    bool ends_attempt = false;  // what the attempt made is no good; only another one can help
    bool waits = false;         // somebody can mend it, as a queue that is gone: the pauses are long, and are shown
};
using Outcome =
    std::variant<Staged, Submitted, Observed, Collected, Cancelled, Unreachable, Rejected, Moving, HeldBack>;

// What it comes to that a step could not be done. Refusals of an update are no such errors, but Rejected (below).
Outcome outcome_of(const Task& task, const Error& error);
// Such a refusal; `is_permanent`: of the next attempt's as well.
Outcome refuse_update(const Error& error, bool is_permanent = false);

struct PollPolicy {
    // Between looks at a submitted attempt: a third of the time since it was submitted, or began to run, within these.
    std::int64_t poll_ms = 1000;
    std::int64_t poll_ms_max = 1000;
    std::int64_t batch_poll_ms = 10000;  // between questions to the batch system, or two looks where that is longer
    std::int64_t queue_misses_max = 3;   // that many in a row, over missing_ms, and an attempt counts as lost
    std::int64_t missing_ms = 10000;
    std::int64_t retry_ms = 500;  // back-off: doubled at each failure in a row up to retry_ms_max
    std::int64_t retry_ms_max = 600000;
    std::int64_t step_failures_max = 5;
};

// The ends of what an attempt that has ended wrote at its site.
struct AttemptLogs {
    std::string task;
    std::int64_t attempt = 0;
    Step step = Step::kFailed;
    std::int64_t tries = 0;                     // how often its site may still be asked for them
    std::map<std::string, std::string> text{};  // by file; empty: they could not be read
};

struct TaskChange {
    Task task;
    std::vector<DomainEvent> events;
    std::int64_t next_in_ms = 0;
    bool is_news = false;                // more changed than the timing and the counters of the attempt
    std::vector<AttemptLogs> logs = {};  // of the attempt, where it has ended, and of earlier ones there
    std::int64_t retry_ms = 0;           // Unreachable's
    bool has_staged = false;             // the work directory is there
    // Why the facility's batch system gave no answer; empty: it gave one; nothing: it was not asked.
    std::optional<std::string> batch_silence = {};
    std::string refusal = {};  // why the update that the attempt was to hand in was refused, if it was
};

// The next attempt of a pending task; it must be written down before its first step.
TaskChange begin_attempt(Task task);
// A task whose cancellation was asked for and that has no attempt at work.
TaskChange cancel_idle(Task task);
// A task whose facility cannot be worked with at all.
TaskChange give_up(Task task, const std::string& why);
// A task that only its site could end, which is not waited for any more: `who` says so.
Task abandon(Task task, const std::string& who);
// `now_ms` is when the step began, which took `took_ms`.
TaskChange apply(Task task, const Outcome& outcome, const PollPolicy& poll_policy, std::int64_t now_ms,
                 std::int64_t took_ms = 0);
// A step that cannot be done or whose outcome cannot be kept, whatever is tried: its attempt has failed.
TaskChange fail_step(Task task, const std::string& why, const PollPolicy& poll_policy);

std::int64_t poll_interval_ms(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms);
std::int64_t batch_interval_ms(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms);
// Whether the attempt has failed, from `before` to `after`, while its batch job may be in the queue or run: one whose
// submission is refused may be a continuation, or may have been submitted before.
bool leaves_batch_job(const Task& before, const Task& after);
// Whether a batch system may have ended what ended so; its word is part of the observation then, where it tells.
bool may_be_interrupted(std::int64_t exit_code);
// Whether a training that ended with 0 says, in `lines` or before, that it stopped before its end: the batch system's
// word tells who stopped it.
bool stopped_early(const Task& task, const std::vector<std::string>& lines);
// Whether its ranks may have said by now why they make no first step.
bool may_tell_no_step(const Task& task, const Observed& observed, std::int64_t now_ms);
bool should_ask_batch(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms);
std::int64_t backoff_ms(std::int64_t failures, const PollPolicy& poll_policy);

}  // namespace atl::dispatch
