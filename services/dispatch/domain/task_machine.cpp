#include "services/dispatch/domain/task_machine.h"

#include <algorithm>

#include "shared/base/backoff.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kLogBytesMax = std::int64_t{1} << 30;  // far more than any training's step lines
constexpr std::int64_t kLooksAtOnceMax = 64;                  // at a long log; then it is read at the pace of polls
// Exit codes of the trainer after which another attempt would end the same way.
constexpr std::int64_t kBadInput = 2;
constexpr std::int64_t kNotEnoughMemory = 3;
constexpr std::size_t kProgressEventsMax = 20;  // of one look; older lines stay in stdout.jsonl

Json event_data(const Task& task) {
    Json data = {{"job", task.job},
                 {"round", task.round},
                 {"task", task.id},
                 {"kind", to_string(task.kind())},
                 {"facility", task.facility}};
    if (task.attempt) data["attempt"] = task.attempt->number;
    if (const auto* evaluate = std::get_if<EvaluateParams>(&task.params)) data["dataset"] = evaluate->dataset;
    return data;
}

void add_event(TaskChange& change, const char* type, const Json& more = Json::object()) {
    Json data = event_data(change.task);
    data.update(more);
    change.events.push_back({type, std::move(data)});
}

void enter(TaskChange& change, Step step) {
    change.task.attempt->step = step;
    change.task.attempt->step_failures = 0;
    change.is_news = true;
}

void finish(TaskChange& change, TaskState state, Step step) {
    change.task.state = state;
    enter(change, step);
    change.next_in_ms = 0;
}

void succeed(TaskChange& change, Json result) {
    change.task.result = std::move(result);
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

// What a site's program says is kept only as far as it is numbers. (Of what a failed one wrote to standard error the
// reason is kept too, failure_text(): no program of ours writes text of a dataset there.)
Status take_training_line(Attempt& attempt, const std::string& text, std::vector<StepLine>& steps) {
    ATOLL_TRY(const TrainingLine line, read_training_line(text));
    if (const auto* summary = std::get_if<SummaryLine>(&line)) attempt.summary = *summary;
    if (const auto* step = std::get_if<StepLine>(&line)) steps.push_back(*step);
    return {};
}

Status take_result(const EvaluateParams& evaluate, Attempt& attempt, const std::string& text) {
    ATOLL_TRY(const auto result, read_evaluation_line(text));
    if (!result) return {};
    const std::size_t models = evaluate.models.size();
    if (attempt.results.size() == models)
        return internal_error("there are results of more than the " + std::to_string(models) +
                              " models that were to be evaluated");
    attempt.results.push_back(*result);
    return {};
}

// Stops at a line that none of our programs can have written; the error names it.
Status take_lines(Task& task, const std::vector<std::string>& lines, std::vector<StepLine>& steps) {
    Attempt& attempt = *task.attempt;
    for (const std::string& line : lines) {
        ++attempt.log_lines;
        Status taken;
        if (task.kind() == TaskKind::kTrain) taken = take_training_line(attempt, line, steps);
        if (const auto* evaluate = std::get_if<EvaluateParams>(&task.params))
            taken = take_result(*evaluate, attempt, line);
        if (!taken.ok())
            return internal_error("line " + std::to_string(attempt.log_lines) +
                                  " of stdout.jsonl: " + describe(taken.error()));
    }
    return {};
}

void tell_steps(TaskChange& change, const std::vector<StepLine>& steps) {
    if (steps.empty()) return;
    change.is_news = true;
    change.task.attempt->last_step = steps.back();
    const std::size_t first = steps.size() > kProgressEventsMax ? steps.size() - kProgressEventsMax : 0;
    for (std::size_t i = first; i < steps.size(); ++i) {
        const Json step = to_json(steps[i]);
        Json more = Json::object();
        for (const char* key : {"step", "loss", "lr", "tokens_per_s"})
            if (step.contains(key)) more[key] = step[key];
        add_event(change, "atoll.task.progress.v1", more);
    }
}

Status take_log(TaskChange& change, const Observed& watched) {
    std::vector<StepLine> steps;
    const Status taken = take_lines(change.task, watched.lines, steps);
    tell_steps(change, steps);
    change.task.attempt->log_offset = watched.log_offset;
    if (taken.ok() && watched.log_offset > kLogBytesMax)
        return internal_error("stdout.jsonl has more than " + std::to_string(kLogBytesMax) + " bytes");
    return taken;
}

// Of how many of its models an evaluation has results, and the one that it is at.
void add_evaluating_event(TaskChange& change) {
    const auto& models = std::get<EvaluateParams>(change.task.params).models;
    const std::size_t done = change.task.attempt->results.size();
    Json more = {{"models", models.size()}, {"models_done", done}};
    if (done < models.size()) more["model"] = models[done].which;
    add_event(change, "atoll.task.evaluating.v1", more);
    change.is_news = true;
}

// An evaluation's result: the trainer's lines came in the order of the models.
Result<Json> evaluation_result(const Task& task) {
    const auto& [dataset, path, models] = std::get<EvaluateParams>(task.params);
    const std::vector<EvaluationLine>& results = task.attempt->results;
    if (results.size() != models.size())
        return internal_error("the trainer evaluated " + std::to_string(results.size()) + " of " +
                              std::to_string(models.size()) + " models");
    Json evaluations = Json::array();
    for (std::size_t i = 0; i < models.size(); ++i) {
        Json item = {{"model", models[i].digest}, {"which", models[i].which}};
        const Json result = to_json(results[i]);
        for (const char* key : {"loss", "perplexity", "tokens"}) item[key] = result.value(key, Json());
        evaluations.push_back(std::move(item));
    }
    return Json{{"dataset", dataset}, {"evaluations", std::move(evaluations)}};
}

// A run that stopped for time is no failure: the next attempt goes on from its state. One that made no step would never
// end.
void go_on_later(TaskChange& change, const PollPolicy& poll_policy) {
    if (!change.task.attempt->last_step)
        return fail_attempt(change, "the trainer's time limit left no time for a step", false, poll_policy);
    finish(change, TaskState::kPending, Step::kDone);
}

void end_of_batch(TaskChange& change, const Observed& watched, const PollPolicy& poll_policy) {
    Task& task = change.task;
    task.attempt->exit_code = watched.exit_code;
    if (*watched.exit_code != 0) {
        const std::string tail = watched.stderr_tail.empty() ? "" : ": " + watched.stderr_tail;
        const bool is_final = *watched.exit_code == kBadInput || *watched.exit_code == kNotEnoughMemory;
        return fail_attempt(change, "exit code " + std::to_string(*watched.exit_code) + tail, is_final, poll_policy);
    }
    if (task.kind() == TaskKind::kTrain && !task.attempt->summary)
        return fail_attempt(change, "the trainer ended without its summary line", false, poll_policy);
    if (task.kind() == TaskKind::kTrain && task.attempt->summary->resumable) return go_on_later(change, poll_policy);
    if (task.kind() != TaskKind::kEvaluate) return enter(change, Step::kCollecting);
    auto result = evaluation_result(task);
    if (!result.ok()) return fail_attempt(change, describe(result.error()), false, poll_policy);
    succeed(change, std::move(result).value());
}

void take_batch_answer(TaskChange& change, BatchState answer, std::int64_t asked_ms, const PollPolicy& poll_policy) {
    Attempt& attempt = *change.task.attempt;
    attempt.batch_asked_ms = asked_ms;
    if (answer != BatchState::kUnknownToQueue) {
        attempt.absent_answers = 0;
        return;
    }
    if (attempt.absent_answers++ == 0) attempt.absent_since_ms = asked_ms;
    if (attempt.absent_answers >= poll_policy.absent_answers &&
        asked_ms - attempt.absent_since_ms >= poll_policy.absent_ms)
        fail_attempt(change, "the batch job vanished without writing exit.json", false, poll_policy);
}

void watch(TaskChange& change, const Observed& watched, const PollPolicy& poll_policy) {
    change.next_in_ms = poll_policy.poll_ms;
    change.task.attempt->step_failures = 0;
    const bool starts = watched.started && change.task.attempt->step == Step::kQueued;
    const std::size_t results_before = change.task.attempt->results.size();
    if (starts) {
        enter(change, Step::kRunning);
        add_event(change, "atoll.task.running.v1");
    }
    if (const Status taken = take_log(change, watched); !taken.ok())
        return fail_attempt(change, describe(taken.error()), false, poll_policy);
    if (change.task.kind() == TaskKind::kEvaluate && (starts || change.task.attempt->results.size() != results_before))
        add_evaluating_event(change);
    if (!watched.log_is_drained) {
        if (++change.task.attempt->undrained_looks <= kLooksAtOnceMax) change.next_in_ms = 0;
        return;
    }
    change.task.attempt->undrained_looks = 0;
    if (watched.exit_code) {
        change.next_in_ms = 0;
        return end_of_batch(change, watched, poll_policy);
    }
    if (watched.queue_status) take_batch_answer(change, *watched.queue_status, watched.batch_asked_ms, poll_policy);
}

struct Applier {
    TaskChange& change;
    const PollPolicy& poll_policy;
    std::int64_t now_ms;

    void operator()(const Staged&) const { enter(change, Step::kSubmitting); }
    void operator()(const Submitted& submitted) const {
        change.task.attempt->batch_id = submitted.batch_id;
        enter(change, Step::kQueued);
        change.task.attempt->batch_asked_ms = now_ms;
        change.next_in_ms = std::min<std::int64_t>(poll_policy.poll_ms, 1000);
    }
    void operator()(const Observed& watched) const { watch(change, watched, poll_policy); }
    void operator()(const Collected& collected) const { succeed(change, collected.result); }
    void operator()(const Cancelled&) const { finish(change, TaskState::kCancelled, Step::kCancelled); }
    void operator()(const Unreachable& unknown) const {
        Attempt& attempt = *change.task.attempt;
        attempt.error = unknown.why;
        change.next_in_ms = backoff_ms(++attempt.step_failures, poll_policy);
    }
    void operator()(const Rejected& refused) const {
        Attempt& attempt = *change.task.attempt;
        attempt.error = refused.why;
        if (refused.is_permanent || refused.ends_attempt || ++attempt.step_failures >= poll_policy.step_failures_max)
            return fail_attempt(change, refused.why, refused.is_permanent, poll_policy);
        change.next_in_ms = backoff_ms(attempt.step_failures, poll_policy);
    }
};

}  // namespace

std::int64_t backoff_ms(std::int64_t failures, const PollPolicy& poll_policy) {
    using std::chrono::milliseconds;
    return backoff_delay(failures, milliseconds(poll_policy.retry_ms), milliseconds(poll_policy.retry_ms_max)).count();
}

bool should_ask_batch(const Attempt& attempt, const PollPolicy& poll_policy, std::int64_t now_ms) {
    return now_ms - attempt.batch_asked_ms >= poll_policy.batch_poll_ms;
}

TaskChange begin_attempt(Task task) {
    check(!is_finished(task.state), "a new attempt of a finished task");
    Attempt attempt;
    if (task.attempt) {
        const Attempt& last = *task.attempt;
        attempt.number = last.number + 1;
        attempt.failed_before = last.failed_before + (last.step == Step::kFailed ? 1 : 0);
        // Its process has ended, so that nobody else writes its state; without one the trainer begins anew.
        if (task.kind() == TaskKind::kTrain && last.exit_code) attempt.continues = last.number;
    }
    // Cleaning up has nothing to stage or submit.
    attempt.step = task.kind() == TaskKind::kClean ? Step::kCollecting : Step::kStaging;
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

TaskChange fail_step(Task task, const std::string& why, const PollPolicy& poll_policy) {
    if (!task.attempt || task.state != TaskState::kRunning) return give_up(std::move(task), why);
    TaskChange change{std::move(task), {}, 0, true};
    fail_attempt(change, why, false, poll_policy);
    return change;
}

TaskChange apply(Task task, const Outcome& outcome, const PollPolicy& poll_policy, std::int64_t now_ms) {
    check(task.attempt.has_value(), "an outcome for a task without an attempt");
    TaskChange change{std::move(task), {}, 0, false};
    std::visit(Applier{change, poll_policy, now_ms}, outcome);
    return change;
}

}  // namespace atl::dispatch
