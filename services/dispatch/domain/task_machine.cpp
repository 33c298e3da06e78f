#include "services/dispatch/domain/task_machine.h"

#include <algorithm>
#include <limits>

#include "services/dispatch/domain/attempt_end.h"
#include "services/dispatch/domain/attempt_lines.h"
#include "services/dispatch/domain/continuation.h"
#include "services/dispatch/domain/evaluation_result.h"
#include "services/dispatch/domain/step_events.h"
#include "shared/base/backoff.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/run_settings/exit_codes.h"
#include "shared/site/attempt_files.h"
#include "shared/site/exit_status.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kLogBytesMax = std::int64_t{1} << 30;  // far more than any training's step lines
constexpr std::int64_t kReadsAtOnceMax = 64;        // of a long log; then it is read as often as polls are made
constexpr std::int64_t kKilled = 137;               // by SIGKILL: nothing that the trainer does to itself
constexpr std::int64_t kLongCleaning_ms = 600'000;  // after which it is told
constexpr std::int64_t kAttemptsAtOnce = 20;        // after which those that go on wait longer and longer
constexpr std::int64_t kInterruptionsMax = 5;       // in a row, none of which began further on than the one before it
constexpr std::int64_t kSitePause_ms = 60000;       // after a batch job that the site had no disk, node or image for
constexpr std::int64_t kSitePauseMax_ms = 1'800'000;
constexpr std::int64_t kRoomKibMin = 1024;  // of a work directory that is not full
constexpr std::int64_t kHeldBackPause_ms = 60000;
constexpr std::int64_t kNoStepAfter_ms = 35000;  // atoll-trainer says after 30 s that its ranks wait

void add_event(TaskChange& change, const char* type, const Json& more = Json::object()) {
    const Task& task = change.task;
    Json data = {{"job", task.job},
                 {"round", task.round},
                 {"task", task.id},
                 {"kind", to_string(task.kind())},
                 {"facility", task.facility}};
    if (task.attempt) data["attempt"] = task.attempt->number;
    if (const auto* evaluate = std::get_if<EvaluateParams>(&task.params)) data["dataset"] = evaluate->dataset;
    data.update(more);
    change.events.push_back({type, std::move(data)});
}

void enter(TaskChange& change, Step step) {
    Attempt& attempt = *change.task.attempt;
    const std::int64_t bytes = is_lost(step) ? attempt.bytes_done : attempt.bytes_total;
    if (is_phase(attempt.step)) attempt.phases.push_back({attempt.step, attempt.since_ms, 0, bytes});
    attempt.step = step;
    attempt.step_failures = 0;
    attempt.since_ms = 0;
    attempt.bytes_done = attempt.bytes_total = 0;
    change.is_news = true;
}

// Phases that were left by a step that took `took_ms`: a transfer that nobody saw under way lasted as long.
void date_phases(Attempt& attempt, std::int64_t now_ms, std::int64_t took_ms) {
    for (PastPhase& phase : attempt.phases) {
        if (phase.ended_ms != 0) continue;
        phase.ended_ms = is_transfer(phase.step) ? now_ms + took_ms : now_ms;
        if (phase.began_ms == 0) phase.began_ms = now_ms;
    }
}

// Failures count in a row as long as nothing moves between them.
void note_moving(TaskChange& change, const Moving& moving, const PollPolicy& poll_policy, std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    if (attempt.since_ms == 0) attempt.since_ms = now_ms;
    const bool is_another = moving.bytes_total != 0 && moving.bytes_total != attempt.bytes_total;
    if (is_another || moving.bytes_done > attempt.bytes_done) {
        attempt.bytes_done = moving.bytes_done;
        attempt.bytes_total = moving.bytes_total;
        attempt.step_failures = 0;
    }
    change.next_in_ms = moving.next_in_ms.value_or(poll_interval_ms(attempt, poll_policy, now_ms));
    if (change.task.kind() != TaskKind::kClean || now_ms - attempt.since_ms < kLongCleaning_ms) return;
    attempt.waiting = {"what the job left there is still being removed", attempt.since_ms, now_ms + change.next_in_ms};
    change.is_news = true;
}

void finish(TaskChange& change, TaskState state, Step step) {
    change.task.state = state;
    enter(change, step);
    change.next_in_ms = 0;
}

void succeed(TaskChange& change, Json result, std::int64_t bytes = 0) {
    change.task.result = std::move(result);
    change.task.attempt->bytes_total = bytes;
    finish(change, TaskState::kDone, Step::kDone);
    add_event(change, "atoll.task.done.v1", {{"result", change.task.result}});
}

void fail_attempt(TaskChange& change, const std::string& why, bool is_permanent, const PollPolicy& poll_policy) {
    Task& task = change.task;
    task.attempt->error = why;
    const std::int64_t failed = task.attempt->failed_before + 1;
    if (failed < task.attempts_max && !is_permanent && !task.cancel_requested) {
        finish(change, TaskState::kPending, Step::kFailed);
        change.next_in_ms = backoff_ms(failed, poll_policy);
        add_event(change, "atoll.task.retrying.v1", {{"error", why}});
        return;
    }
    task.error = task.facility + ": " + to_string(task.kind()) +
                 (task.job.empty() ? "" : " of round " + std::to_string(task.round)) + " failed at attempt " +
                 std::to_string(task.attempt->number) + ": " + why;
    finish(change, TaskState::kFailed, Step::kFailed);
    add_event(change, "atoll.task.failed.v1", {{"error", task.error}});
}

Status apply_log(TaskChange& change, const Observed& observed) {
    std::vector<StepLine> steps;
    Attempt& attempt = *change.task.attempt;
    const Status read = read_lines(change.task, observed.lines, steps);
    const bool begins = !steps.empty() && !attempt.last_step;
    if (!steps.empty()) {
        change.is_news = true;
        if (begins) {
            attempt.begun_at_step = steps.front().step;
            if (steps.front().step > attempt.first_step) attempt.interruptions = attempt.not_ready_since_ms = 0;
            attempt.first_step = std::max(attempt.first_step, steps.front().step);
        }
        attempt.last_step = newest_step(attempt.last_step, steps);
    }
    std::vector<Json> events = progress_events(steps, attempt.points_told);
    if (begins && attempt.number > 1) events.front()["first_step"] = attempt.begun_at_step;
    for (const Json& more : events) add_event(change, "atoll.task.progress.v1", more);
    attempt.log_offset = observed.log_offset;
    if (read.ok() && observed.log_offset > kLogBytesMax)
        return internal_error(std::string(site::kStandardOutput) + " has more than " + std::to_string(kLogBytesMax) +
                              " bytes");
    return read;
}

// How many interruptions one counts for: a time limit that was too short once is so again, and what somebody at the
// site has cancelled is not to come back for long.
std::int64_t weight(BatchEnd end) {
    if (end == BatchEnd::kTimeLimit) return 3;
    return end == BatchEnd::kCancelled ? 2 : 1;
}

// The attempt was cut short and has not failed: the next one goes on from the last state that it saved.
void make_way(TaskChange& change, const std::string& why, Step step) {
    change.task.attempt->error = why;
    finish(change, TaskState::kPending, step);
    add_event(change, "atoll.task.retrying.v1", {{"error", why}, {"interrupted", true}});
}

// Who goes on again and again, a step further each time, would fill the database.
std::int64_t pause_of(const Attempt& attempt, std::int64_t usual_ms, const PollPolicy& poll_policy) {
    if (attempt.number <= kAttemptsAtOnce) return usual_ms;
    return std::max(usual_ms, backoff_ms(attempt.number - kAttemptsAtOnce, poll_policy));
}

// The next attempt goes on from the newest state, and none of `attempts_max` is used up. A training that is ended again
// and again before it has come further fails all the same.
void interrupt_attempt(TaskChange& change, const std::string& why, BatchEnd end, const PollPolicy& poll_policy) {
    Attempt& attempt = *change.task.attempt;
    const bool is_first = attempt.interruptions == 0;
    attempt.interruptions += weight(end);
    if (change.task.cancel_requested) return fail_attempt(change, why, false, poll_policy);
    if (attempt.interruptions > kInterruptionsMax) return fail_attempt(change, why + cure_of(end), true, poll_policy);
    make_way(change, why, Step::kInterrupted);
    change.next_in_ms =
        pause_of(attempt, is_first ? 0 : backoff_ms(attempt.interruptions - 1, poll_policy), poll_policy);
}

const std::string kGoesOn = "; its state is saved, and a longer `time` of its resources needs fewer attempts";
const std::string kTimeOrSomebody =
    "it was told to stop, and its batch system has forgotten why: its time was up, or somebody at the site ended it";
const std::string kRequeued = "the batch job was put back into its queue";

// A run that stopped before its end is no failure: the next attempt goes on from its state. One that never begins
// further on than those before it may never end. Whether it was its own time that was up, or somebody who cancelled the
// batch job, is for the batch system to say, which is waited for while the job is still being ended.
void apply_stop(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy) {
    Attempt& attempt = *change.task.attempt;
    const BatchAnswer answer = as_stopped(observed.queue_status.value_or(BatchAnswer()));
    if (observed.queue_status) attempt.batch_asked_ms = observed.batch_asked_ms;
    if (answer.state == BatchState::kRunning) return;
    attempt.exit_code = 0;
    if (attempt.last_step && attempt.last_step->step > attempt.saved_step) {  // it came further than any before it
        attempt.saved_step = attempt.last_step->step;
        attempt.interruptions = 0;
    }
    const bool is_time_up = answer.end == BatchEnd::kTimeLimit;
    if (is_interruption(answer.end) && !is_time_up)
        return interrupt_attempt(change, end_text(answer), answer.end, poll_policy);
    // A batch system that has told how it ended would have told whom it was cancelled by.
    const bool is_forgotten = observed.queue_status && observed.queue_status->end == BatchEnd::kUnknown;
    std::string why = end_text(answer);
    if (is_time_up && answer.reason.empty()) why = is_forgotten ? kTimeOrSomebody : "its time was up";
    if (answer.state == BatchState::kQueued) why = kRequeued;
    if (!attempt.last_step || attempt.interruptions >= kInterruptionsMax)
        return interrupt_attempt(change, why + " before it came further", BatchEnd::kTimeLimit, poll_policy);
    ++attempt.interruptions;
    make_way(change, is_time_up ? why + kGoesOn : why, Step::kDone);
    change.next_in_ms = pause_of(attempt, change.next_in_ms, poll_policy);
}

void apply_success(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy) {
    Task& task = change.task;
    if (stopped_early(task, {})) return apply_stop(change, observed, poll_policy);
    task.attempt->exit_code = 0;
    if (task.kind() == TaskKind::kEvaluate) {
        auto result = evaluation_result(task, observed.model_failures);
        if (!result.ok()) return fail_attempt(change, describe(result.error()), false, poll_policy);
        return succeed(change, std::move(result).value());
    }
    if (task.kind() == TaskKind::kTrain && !task.attempt->summary)
        return fail_attempt(change, "the trainer ended without its summary line", false, poll_policy);
    enter(change, Step::kCollecting);
    change.next_in_ms = 0;
}

// Somebody has to make room or mend a node, which takes as long as it takes: the next attempt goes on from the newest
// state then. The pauses grow as long as no attempt comes further than the one before it.
void wait_for_site(TaskChange& change, const std::string& why, std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    attempt.waiting = wait_longer(attempt.not_ready_since_ms, why, now_ms, kSitePause_ms, kSitePauseMax_ms);
    attempt.not_ready_since_ms = attempt.waiting->since_ms;
    make_way(change, why, Step::kInterrupted);
    change.next_in_ms = attempt.waiting->next_ms - now_ms;
}

// What its file system did not show for a while is there again, or is brought again. A place that a login node sees and
// no compute node does looks the same: so the attempts in a row are bounded.
bool may_wait_for_files(Attempt& attempt, const Observed& observed) {
    return observed.was_away && ++attempt.interruptions <= kInterruptionsMax;
}

// Where no further attempt is made an evaluation's results of other models count. Where no model is the one that failed
// something else has, and all that was printed is in doubt.
void fail_for_models(TaskChange& change, const Observed& observed, const std::string& why, bool is_permanent,
                     const PollPolicy& poll_policy) {
    const Task& task = change.task;
    const bool is_last = is_permanent || task.attempt->failed_before + 1 >= task.attempts_max;
    const bool has_failed_model = std::ranges::any_of(
        task.attempt->results, [](const EvaluationLine& result) { return result.failed_with.has_value(); });
    if (task.kind() == TaskKind::kEvaluate && has_failed_model && is_last && !task.cancel_requested)
        if (auto result = evaluation_result(task, observed.model_failures); result.ok())
            return succeed(change, std::move(result).value());
    fail_attempt(change, why, is_permanent, poll_policy);
}

// A batch system that ends a job has its programs fail: then its word counts, and is waited for while the job is still
// being ended.
void apply_failure(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy, std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    const std::int64_t exit_code = *observed.exit_code;
    BatchAnswer answer = observed.queue_status.value_or(BatchAnswer());
    if (observed.queue_status) attempt.batch_asked_ms = observed.batch_asked_ms;
    if (answer.state == BatchState::kRunning) return;
    attempt.exit_code = exit_code;
    if (observed.is_out_of_memory && may_be_interrupted(exit_code) && !is_interruption(answer.end))
        answer.end = BatchEnd::kOutOfMemory;
    const bool is_out_of_memory = answer.end == BatchEnd::kOutOfMemory;
    const bool is_requeued = answer.state == BatchState::kQueued;
    std::string why = exit_code_text(exit_code);
    if (!observed.stderr_tail.empty()) why += ": " + observed.stderr_tail;
    if (is_requeued) why = kRequeued + "; " + why;
    if (is_interruption(answer.end) || is_out_of_memory) why = end_text(answer) + "; " + why;
    if (is_interruption(answer.end) || is_requeued || (exit_code == kKilled && !is_out_of_memory))
        return interrupt_attempt(change, why, answer.end, poll_policy);
    if (is_out_of_memory) return fail_attempt(change, why + cure_of(answer.end), false, poll_policy);
    const bool is_of_site =
        observed.is_of_site || exit_code == site::kExitTryLater || may_wait_for_files(attempt, observed);
    if (is_of_site && !change.task.cancel_requested) return wait_for_site(change, why, now_ms);
    fail_for_models(change, observed, why, !may_be_interrupted(exit_code), poll_policy);
}

// Words for a job whose turn has not come.
bool is_ordinary(const std::string& reason) {
    return reason == "Priority" || reason == "Resources" || reason.starts_with(kTurnNotCome);
}

void note_queue_reason(TaskChange& change, const BatchAnswer& answer, std::int64_t asked_ms) {
    Attempt& attempt = *change.task.attempt;
    const std::string reason = batch_wait(answer, attempt.step, attempt.batch_id);
    if (reason == attempt.queue_reason) return;
    const bool is_told = reason.empty() || (is_ordinary(reason) && is_ordinary(attempt.queue_reason));
    attempt.queue_reason = reason;
    attempt.queue_reason_since_ms = reason.empty() ? 0 : asked_ms;
    change.is_news = true;
    if (!is_told) add_event(change, "atoll.task.queued.v1", {{"reason", reason}, {"step", to_string(attempt.step)}});
}

// Of a job that is no longer in its queue and has left no record.
std::string why_gone(const BatchAnswer& answer, bool has_begun) {
    const bool has_ended = answer.state == BatchState::kEnded;
    const std::string ended = end_text(answer);
    const std::string what = !has_ended ? "the batch job vanished" : ended.empty() ? "the batch job ended" : ended;
    if (!has_begun) return what + " before it began";
    return what + (has_ended ? " without its " : " without writing ") + site::kEnd;
}

// The job's own record is not there. It may be on its way, so that a job counts as gone after some answers apart in
// time.
void apply_queue_status(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy) {
    BatchAnswer answer = *observed.queue_status;
    if (observed.is_out_of_memory && answer.end == BatchEnd::kFailed) answer.end = BatchEnd::kOutOfMemory;
    const std::int64_t asked_ms = observed.batch_asked_ms;
    Attempt& attempt = *change.task.attempt;
    attempt.batch_asked_ms = asked_ms;
    note_queue_reason(change, answer, asked_ms);
    // What has begun and is queued again would, at its second start, give way to its first.
    const bool is_requeued = answer.state == BatchState::kQueued && attempt.step == Step::kRunning;
    if (answer.state == BatchState::kRunning || (answer.state == BatchState::kQueued && !is_requeued)) {
        attempt.queue_misses = 0;
        return;
    }
    // What writes on runs, though the queue may know it by another name by now.
    if (answer.state == BatchState::kUnknownToQueue && !observed.lines.empty()) attempt.queue_misses = 0;
    if (attempt.queue_misses++ == 0 || asked_ms < attempt.missing_since_ms) attempt.missing_since_ms = asked_ms;
    change.next_in_ms = std::min(change.next_in_ms, poll_interval_ms(attempt, poll_policy, asked_ms));
    if (attempt.queue_misses < poll_policy.queue_misses_max ||
        asked_ms - attempt.missing_since_ms < poll_policy.missing_ms)
        return;
    if (is_requeued)
        return interrupt_attempt(change, kRequeued + "; it left no " + site::kEnd, answer.end, poll_policy);
    const std::string said = observed.batch_tail.empty() ? "" : "; its log ends with: " + observed.batch_tail;
    const bool has_begun = attempt.step != Step::kQueued;
    const std::string why = why_gone(answer, has_begun) + said;
    // Not even its end could be recorded.
    if (observed.free_kib >= 0 && observed.free_kib < kRoomKibMin && !change.task.cancel_requested)
        return wait_for_site(change,
                             why + "; no room is left in its work directory (" + std::to_string(observed.free_kib) +
                                 " KiB): free some there",
                             asked_ms);
    // Not even its first line was run: a node without the work directory, a prolog or a template that fails; or
    // somebody at the site has ended what waited.
    const bool is_of_site = answer.end == BatchEnd::kFailed || answer.end == BatchEnd::kCancelled;
    if (!has_begun && is_of_site && !change.task.cancel_requested) {
        const bool is_unexplained = answer.end == BatchEnd::kFailed && said.empty();
        return wait_for_site(
            change,
            why + (is_unexplained ? ": is the work directory there on the compute nodes, with room in it?" : ""),
            asked_ms);
    }
    // As when a node goes down, the batch system may know nothing any more. What completed without its record was
    // requeued, by whoever may do so, and gave way to its first start.
    if (answer.end == BatchEnd::kUnknown || answer.end == BatchEnd::kCompleted || is_interruption(answer.end))
        return interrupt_attempt(change, why, answer.end, poll_policy);
    fail_attempt(change, answer.end == BatchEnd::kOutOfMemory ? why + cure_of(answer.end) : why, false, poll_policy);
}

// Tried again after pauses that grow as long as it goes on.
void wait_for_answer(TaskChange& change, const Unreachable& unreachable, const PollPolicy& poll_policy,
                     std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    const std::string& why = unreachable.why;
    if (attempt.error.empty()) attempt.waiting.reset();  // it answered, and had no first step
    attempt.error = why;
    ++attempt.step_failures;
    change.retry_ms = unreachable.retry_ms;
    change.next_in_ms =
        unreachable.retry_ms > 0 ? unreachable.retry_ms : backoff_ms(attempt.step_failures, poll_policy);
    const bool goes_on = attempt.waiting && is_same_trouble(attempt.waiting->reason, why);
    attempt.waiting = {why, goes_on ? attempt.waiting->since_ms : now_ms, now_ms + change.next_in_ms};
    if (attempt.step_failures == poll_policy.step_failures_max)  // no passing trouble
        add_event(change, "atoll.task.waiting.v1", {{"step", to_string(attempt.step)}, {"error", why}});
}

bool lacks_answer(const Outcome& outcome) {
    const auto* observed = std::get_if<Observed>(&outcome);
    return std::holds_alternative<Unreachable>(outcome) ||
           (observed != nullptr && !observed->no_queue_status.empty() && !observed->is_batch_system_silent);
}

// It runs, but its ranks do not reach one another, which its own limit ends.
void note_no_step(TaskChange& change, const std::string& why, std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    const bool is_known = attempt.waiting && attempt.error.empty();  // else the site gave no answer before
    change.is_news = change.is_news || !is_known;
    attempt.error.clear();
    attempt.waiting = {why, is_known ? attempt.waiting->since_ms : now_ms, now_ms + change.next_in_ms};
}

// Its queue's record or the site's queues have to be changed, by somebody.
bool waits_for_queue(const Outcome& outcome) {
    const auto* rejected = std::get_if<Rejected>(&outcome);
    return rejected != nullptr && rejected->waits;
}

void apply_rejection(TaskChange& change, const Rejected& rejected, const PollPolicy& poll_policy, std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    attempt.error = rejected.why;
    if (rejected.ends_attempt) change.refusal = rejected.why;
    // A check or a change of the facility brings the next try forward: that one is not counted.
    const std::int64_t early_ms = rejected.waits && attempt.waiting ? attempt.waiting->next_ms - now_ms : 0;
    const bool is_last = early_ms <= 0 && ++attempt.step_failures >= poll_policy.step_failures_max;
    if (rejected.is_permanent || rejected.ends_attempt || is_last) {
        attempt.waiting.reset();
        return fail_attempt(change, rejected.why, rejected.is_permanent, poll_policy);
    }
    change.next_in_ms = backoff_ms(attempt.step_failures, poll_policy);
    if (!rejected.waits) return;
    if (attempt.no_queue_since_ms == 0) attempt.no_queue_since_ms = now_ms;
    change.next_in_ms =
        early_ms > 0 ? early_ms : std::min(kSitePause_ms << (attempt.step_failures - 1), kSitePauseMax_ms);
    const std::string tries = " (try " + std::to_string(attempt.step_failures) + " of " +
                              std::to_string(poll_policy.step_failures_max) + ", with longer and longer pauses)";
    attempt.waiting = {rejected.why + tries, attempt.no_queue_since_ms, now_ms + change.next_in_ms};
    if (attempt.step_failures == 1 && early_ms <= 0)
        add_event(change, "atoll.task.waiting.v1", {{"step", to_string(attempt.step)}, {"error", rejected.why}});
}

bool makes_no_step(const Outcome& outcome) {
    const auto* observed = std::get_if<Observed>(&outcome);
    return observed != nullptr && !observed->no_step.empty();
}

// What the outcome tells of the facility's batch system. A submission that was found by its file has not asked it.
std::optional<std::string> batch_silence(const Outcome& outcome) {
    if (const auto* unreachable = std::get_if<Unreachable>(&outcome); unreachable != nullptr)
        return unreachable->is_of_batch_system ? std::optional(unreachable->why) : std::nullopt;
    const auto* observed = std::get_if<Observed>(&outcome);
    if (observed != nullptr && observed->queue_status) return "";
    if (observed != nullptr && observed->is_batch_system_silent) return observed->no_queue_status;
    return std::nullopt;
}

void apply_observation(TaskChange& change, const Observed& observed, const PollPolicy& poll_policy,
                       std::int64_t now_ms) {
    Attempt& attempt = *change.task.attempt;
    if (observed.no_queue_status.empty() || observed.is_batch_system_silent) attempt.step_failures = 0;
    attempt.looked_ms = observed.looked_ms;
    const bool starts = observed.started && attempt.step == Step::kQueued;
    const std::size_t results_before = attempt.results.size();
    if (starts) {
        enter(change, Step::kRunning);
        attempt.since_ms = now_ms;
        attempt.queue_reason.clear();
        attempt.queue_reason_since_ms = 0;
        add_event(change, "atoll.task.running.v1");
    }
    change.next_in_ms = poll_interval_ms(attempt, poll_policy, now_ms);
    if (const Status log = apply_log(change, observed); !log.ok())
        return fail_attempt(change, describe(log.error()), false, poll_policy);
    note_pace(attempt, observed);
    const auto* evaluate = std::get_if<EvaluateParams>(&change.task.params);
    if (evaluate != nullptr && (starts || attempt.results.size() != results_before)) {
        const std::size_t done = attempt.results.size();
        Json more = {{"models", evaluate->models.size()}, {"models_done", done}};
        if (done < evaluate->models.size()) more["model"] = evaluate->models[done].which;
        add_event(change, "atoll.task.evaluating.v1", more);
        change.is_news = true;
    }
    if (!observed.log_is_drained) {
        if (++attempt.partial_reads <= kReadsAtOnceMax) change.next_in_ms = 0;
        return;
    }
    attempt.partial_reads = 0;
    if (observed.exit_code && *observed.exit_code != 0) return apply_failure(change, observed, poll_policy, now_ms);
    if (observed.exit_code) return apply_success(change, observed, poll_policy);
    if (observed.queue_status) apply_queue_status(change, observed, poll_policy);
    if (attempt.step == Step::kRunning) note_continuation(change, observed, poll_policy, now_ms);
}

}  // namespace

std::int64_t backoff_ms(std::int64_t failures, const PollPolicy& poll_policy) {
    using std::chrono::milliseconds;
    return backoff_delay(failures, milliseconds(poll_policy.retry_ms), milliseconds(poll_policy.retry_ms_max)).count();
}

bool stopped_early(const Task& task, const std::vector<std::string>& lines) {
    if (task.kind() != TaskKind::kTrain) return false;
    if (task.attempt->summary) return task.attempt->summary->resumable;
    return std::any_of(lines.rbegin(), lines.rend(), [](const std::string& text) {
        const auto line = read_training_line(text);
        const auto* summary = line.ok() ? std::get_if<SummaryLine>(&*line) : nullptr;
        return summary != nullptr && summary->resumable;
    });
}

bool may_be_interrupted(std::int64_t exit_code) {
    return exit_code != 0 && !run_settings::is_final_exit(exit_code);
}

bool leaves_batch_job(const Task& before, const Task& after) {
    return before.attempt && before.attempt->step == Step::kSubmitting && after.attempt->step == Step::kFailed;
}

bool may_tell_no_step(const Task& task, const Observed& observed, std::int64_t now_ms) {
    const Attempt& attempt = *task.attempt;
    return task.kind() == TaskKind::kTrain && attempt.step == Step::kRunning && !observed.exit_code &&
           !attempt.last_step && observed.lines.empty() && now_ms - attempt.since_ms >= kNoStepAfter_ms;
}

TaskChange begin_attempt(Task task) {
    check(!is_finished(task.state), "a new attempt of a finished task");
    Attempt attempt;
    if (task.attempt) {
        const Attempt& last = *task.attempt;
        const bool was_withdrawn = !last.continuation.empty() && last.step == Step::kFailed;
        attempt.number = last.number + (was_withdrawn ? 2 : 1);
        if (is_continued(task)) attempt.step = Step::kSubmitting;  // what it needs is there, and it may have begun
        attempt.failed_before = last.failed_before + (last.step == Step::kFailed ? 1 : 0);
        attempt.first_step = last.first_step;
        attempt.saved_step = last.saved_step;
        attempt.points_told = last.points_told;
        attempt.interruptions = last.step == Step::kFailed ? 0 : last.interruptions;
        attempt.not_ready_since_ms = last.not_ready_since_ms;
        attempt.no_queue_since_ms = last.no_queue_since_ms;
    }
    if (task.kind() == TaskKind::kClean) attempt.step = Step::kCollecting;  // nothing to stage or submit
    TaskChange change{std::move(task), {}, 0, true};
    change.task.attempt = std::move(attempt);
    change.task.state = TaskState::kRunning;
    return change;
}

TaskChange cancel_idle(Task task) {
    TaskChange change{std::move(task), {}, 0, true};
    change.task.state = TaskState::kCancelled;
    return change;
}

TaskChange give_up(Task task, const std::string& why) {
    TaskChange change{std::move(task), {}, 0, true};
    Task& failed = change.task;
    failed.error = failed.facility + ": " + why;
    failed.state = TaskState::kFailed;
    if (failed.attempt) failed.attempt->step = Step::kFailed;
    add_event(change, "atoll.task.failed.v1", {{"error", failed.error}});
    return change;
}

Task abandon(Task task, const std::string& who) {
    task.error = "given up by " + who + " without an answer of " + task.facility;
    std::vector<std::string> left;
    if (may_run(task)) left.push_back(batch_job_name(task));
    if (may_run(task) ? !task.attempt->continuation.empty() : is_continued(task))
        left.push_back(batch_job_name(continuation_of(task)));
    if (!left.empty()) task.error += ", where its batch job " + join(left) + " may still run";
    const bool is_failed = task.kind() == TaskKind::kPrepare;  // somebody waits for it
    task.state = is_failed ? TaskState::kFailed : TaskState::kCancelled;
    if (task.attempt && !is_finished(task.attempt->step))
        task.attempt->step = is_failed ? Step::kFailed : Step::kCancelled;
    return task;
}

TaskChange fail_step(Task task, const std::string& why, const PollPolicy& poll_policy) {
    if (!task.attempt || task.state != TaskState::kRunning) return give_up(std::move(task), why);
    TaskChange change{std::move(task), {}, 0, true};
    fail_attempt(change, why, false, poll_policy);
    return change;
}

TaskChange apply(Task task, const Outcome& outcome, const PollPolicy& poll_policy, std::int64_t now_ms,
                 std::int64_t took_ms) {
    check(task.attempt.has_value(), "an outcome for a task without an attempt");
    TaskChange change{std::move(task), {}, 0, false};
    change.batch_silence = batch_silence(outcome);
    Attempt& attempt = *change.task.attempt;
    if (attempt.waiting && !lacks_answer(outcome) && !makes_no_step(outcome) &&
        !waits_for_queue(outcome)) {  // what stood in the way is over
        attempt.waiting.reset();
        attempt.error.clear();
    }
    std::visit(
        Overloaded{[&](const Staged& staged) {
                       change.has_staged = true;
                       attempt.bytes_total = staged.bytes;
                       enter(change, Step::kSubmitting);
                   },
                   [&](const Submitted& submitted) {
                       attempt.batch_id = submitted.batch_id;
                       attempt.no_queue_since_ms = 0;
                       enter(change, Step::kQueued);
                       attempt.batch_asked_ms = now_ms;
                       attempt.since_ms = now_ms;
                       change.next_in_ms = std::min<std::int64_t>(poll_policy.poll_ms, 1000);
                   },
                   [&](const Observed& observed) {
                       apply_observation(change, observed, poll_policy, now_ms);
                       if (is_finished(attempt.step)) return;
                       if (lacks_answer(outcome))
                           wait_for_answer(change, {observed.no_queue_status}, poll_policy, now_ms);
                       else if (makes_no_step(outcome))
                           note_no_step(change, observed.no_step, now_ms);
                   },
                   [&](const Collected& collected) { succeed(change, collected.result, collected.bytes); },
                   [&](const Moving& moving) { note_moving(change, moving, poll_policy, now_ms); },
                   [&](const HeldBack&) { change.next_in_ms = kHeldBackPause_ms; },
                   [&](const Cancelled&) { finish(change, TaskState::kCancelled, Step::kCancelled); },
                   [&](const Unreachable& unreachable) { wait_for_answer(change, unreachable, poll_policy, now_ms); },
                   [&](const Rejected& rejected) { apply_rejection(change, rejected, poll_policy, now_ms); }},
        outcome);
    date_phases(*change.task.attempt, now_ms, took_ms);
    return change;
}

}  // namespace atl::dispatch
