#include "services/dispatch/domain/task.h"

#include <iterator>

#include "shared/base/check.h"
#include "shared/base/text.h"
#include "shared/base/words.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr Word<TaskKind> kTaskKinds[] = {{TaskKind::kTrain, "train"},
                                         {TaskKind::kEvaluate, "evaluate"},
                                         {TaskKind::kPrepare, "prepare"},
                                         {TaskKind::kClean, "clean"}};
constexpr Word<TaskState> kTaskStates[] = {{TaskState::kPending, "pending"},
                                           {TaskState::kRunning, "running"},
                                           {TaskState::kDone, "done"},
                                           {TaskState::kFailed, "failed"},
                                           {TaskState::kCancelled, "cancelled"}};
constexpr Word<Step> kSteps[] = {
    {Step::kStaging, "staging"}, {Step::kSubmitting, "submitting"},   {Step::kQueued, "queued"},
    {Step::kRunning, "running"}, {Step::kCollecting, "collecting"},   {Step::kDone, "done"},
    {Step::kFailed, "failed"},   {Step::kInterrupted, "interrupted"}, {Step::kCancelled, "cancelled"}};
constexpr Word<JobState> kJobStates[] = {{JobState::kRunning, "running"},
                                         {JobState::kPaused, "paused"},
                                         {JobState::kCompleted, "completed"},
                                         {JobState::kFailed, "failed"},
                                         {JobState::kCancelled, "cancelled"}};
constexpr Word<RoundState> kRoundStates[] = {{RoundState::kTraining, "training"},
                                             {RoundState::kAggregating, "aggregating"},
                                             {RoundState::kClosed, "closed"},
                                             {RoundState::kFailed, "failed"},
                                             {RoundState::kCancelled, "cancelled"}};

template <class Enum, std::size_t count>
Result<Enum> parse(const Word<Enum> (&words)[count], const std::string& word) {
    if (const auto value = find_value(words, word)) return *value;
    return internal_error("this release does not know the word " + in_quotes(word));
}

template <class Enum, std::size_t count>
const char* to_word(const Word<Enum> (&words)[count], Enum value) {
    const char* const word = find_word(words, value);
    check(word != nullptr, "a member of an enum has no word");
    return word;
}

Json phases_json(const std::vector<PastPhase>& phases) {
    Json list = Json::array();
    for (const auto& [step, began_ms, ended_ms, bytes] : phases)
        list.push_back({{"step", to_string(step)}, {"began_ms", began_ms}, {"ended_ms", ended_ms}, {"bytes", bytes}});
    return list;
}

Result<std::vector<PastPhase>> read_phases(const Json& list) {
    std::vector<PastPhase> phases;
    for (const Json& one : list) {
        json::ObjectReader reader(one, "progress.phases");
        const std::string step = reader.required_string("step");
        PastPhase& phase = phases.emplace_back();
        phase.began_ms = reader.required_integer("began_ms", 0, INT64_MAX);
        phase.ended_ms = reader.required_integer("ended_ms", 0, INT64_MAX);
        phase.bytes = reader.required_integer("bytes", 0, INT64_MAX);
        ATOLL_RETURN_IF_ERROR(reader.finish());
        ATOLL_TRY(phase.step, parse_step(step));
    }
    return phases;
}

Json waiting_json(const std::optional<Waiting>& waiting) {
    if (!waiting) return {};
    return {{"reason", waiting->reason}, {"since_ms", waiting->since_ms}, {"next_ms", waiting->next_ms}};
}

Result<std::optional<Waiting>> read_waiting(const Json& value, const char* path) {
    if (value.is_null()) return std::optional<Waiting>();
    json::ObjectReader reader(value, path);
    Waiting waiting;
    waiting.reason = reader.required_string("reason");
    waiting.since_ms = reader.required_integer("since_ms", 0, INT64_MAX);
    waiting.next_ms = reader.required_integer("next_ms", 0, INT64_MAX);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return std::optional(std::move(waiting));
}

}  // namespace

const char* to_string(TaskKind kind) {
    return to_word(kTaskKinds, kind);
}
const char* to_string(TaskState state) {
    return to_word(kTaskStates, state);
}
const char* to_string(Step step) {
    return to_word(kSteps, step);
}
const char* to_string(JobState state) {
    return to_word(kJobStates, state);
}
const char* to_string(RoundState state) {
    return to_word(kRoundStates, state);
}
Result<TaskKind> parse_task_kind(const std::string& word) {
    return parse(kTaskKinds, word);
}
Result<TaskState> parse_task_state(const std::string& word) {
    return parse(kTaskStates, word);
}
Result<Step> parse_step(const std::string& word) {
    return parse(kSteps, word);
}
Result<JobState> parse_job_state(const std::string& word) {
    return parse(kJobStates, word);
}
Result<RoundState> parse_round_state(const std::string& word) {
    return parse(kRoundStates, word);
}

bool is_finished(TaskState state) {
    return state != TaskState::kPending && state != TaskState::kRunning;
}

bool is_finished(Step step) {
    return step == Step::kDone || step == Step::kFailed || step == Step::kInterrupted || step == Step::kCancelled;
}

bool is_phase(Step step) {
    return step == Step::kStaging || step == Step::kQueued || step == Step::kRunning || step == Step::kCollecting;
}

bool is_transfer(Step step) {
    return step == Step::kStaging || step == Step::kCollecting;
}

bool is_lost(Step step) {
    return step == Step::kFailed || step == Step::kCancelled;
}

bool is_finished(JobState state) {
    return state != JobState::kRunning && state != JobState::kPaused;
}

Json progress_json(const Attempt& attempt) {
    Json lines;  // of a training its summary, of an evaluation its results
    if (attempt.summary) lines = to_json(*attempt.summary);
    for (const EvaluationLine& result : attempt.results) lines.push_back(to_json(result));
    return {{"failed_before", attempt.failed_before},
            {"step_failures", attempt.step_failures},
            {"log_offset", attempt.log_offset},
            {"log_lines", attempt.log_lines},
            {"partial_reads", attempt.partial_reads},
            {"lines", std::move(lines)},
            {"last_step", attempt.last_step ? to_json(*attempt.last_step) : Json()},
            {"first_step", attempt.first_step},
            {"begun_at_step", attempt.begun_at_step},
            {"points_told", attempt.points_told},
            {"interruptions", attempt.interruptions},
            {"saved_step", attempt.saved_step},
            {"queue_misses", attempt.queue_misses},
            {"missing_since_ms", attempt.missing_since_ms},
            {"batch_asked_ms", attempt.batch_asked_ms},
            {"looked_ms", attempt.looked_ms},
            {"since_ms", attempt.since_ms},
            {"phases", phases_json(attempt.phases)},
            {"paced_from_step", attempt.paced_from_step},
            {"paced_from_ms", attempt.paced_from_ms},
            {"not_ready_since_ms", attempt.not_ready_since_ms},
            {"no_queue_since_ms", attempt.no_queue_since_ms},
            {"continuation", attempt.continuation},
            {"continuation_waiting", waiting_json(attempt.continuation_waiting)},
            {"bytes_done", attempt.bytes_done},
            {"bytes_total", attempt.bytes_total},
            {"queue_reason", attempt.queue_reason},
            {"queue_reason_since_ms", attempt.queue_reason_since_ms},
            {"log_tries", attempt.log_tries},
            {"waiting", waiting_json(attempt.waiting)}};
}

Status read_progress(const Json& progress, Attempt& attempt) {
    json::ObjectReader reader(progress, "progress");
    const auto count = [&](const char* key) { return reader.required_integer(key, 0, INT64_MAX); };
    attempt.failed_before = count("failed_before");
    attempt.step_failures = count("step_failures");
    attempt.log_offset = count("log_offset");
    attempt.log_lines = count("log_lines");
    attempt.partial_reads = count("partial_reads");
    attempt.first_step = count("first_step");
    attempt.interruptions = count("interruptions");
    attempt.saved_step = count("saved_step");
    attempt.queue_misses = count("queue_misses");
    attempt.missing_since_ms = count("missing_since_ms");
    attempt.batch_asked_ms = count("batch_asked_ms");
    attempt.looked_ms = count("looked_ms");
    attempt.since_ms = count("since_ms");
    attempt.continuation = reader.required_string("continuation");
    attempt.bytes_done = count("bytes_done");
    attempt.bytes_total = count("bytes_total");
    attempt.queue_reason = reader.required_string("queue_reason");
    attempt.queue_reason_since_ms = count("queue_reason_since_ms");
    // Left out by earlier releases.
    const Json& waiting = reader.object_or_null("waiting");
    const Json& continuation_waiting = reader.object_or_null("continuation_waiting");
    attempt.paced_from_step = reader.integer_or("paced_from_step", 0, 0, INT64_MAX);
    attempt.paced_from_ms = reader.integer_or("paced_from_ms", 0, 0, INT64_MAX);
    attempt.begun_at_step = reader.integer_or("begun_at_step", 0, 0, INT64_MAX);
    attempt.points_told = reader.integer_or("points_told", 0, 0, INT64_MAX);
    attempt.log_tries = reader.integer_or("log_tries", 0, 0, INT64_MAX);
    attempt.not_ready_since_ms = reader.integer_or("not_ready_since_ms", 0, 0, INT64_MAX);
    attempt.no_queue_since_ms = reader.integer_or("no_queue_since_ms", 0, 0, INT64_MAX);
    const Json& phases = reader.array_or_null("phases");
    const Json& lines = reader.any_or_null("lines");
    attempt.summary = parse_summary_line(lines);
    attempt.results.clear();
    if (lines.is_array())
        for (const Json& line : lines)
            attempt.results.push_back(parse_evaluation_line(line).value_or(EvaluationLine()));
    attempt.last_step = parse_step_line(reader.any_or_null("last_step"));
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(attempt.phases, read_phases(phases));
    ATOLL_TRY(attempt.waiting, read_waiting(waiting, "progress.waiting"));
    ATOLL_TRY(attempt.continuation_waiting, read_waiting(continuation_waiting, "progress.continuation_waiting"));
    return {};
}

Status check_training_result(const Json& result) {
    json::ObjectReader reader(result, "result");
    reader.required_string("version");
    for (const char* key : {"samples", "tokens"}) reader.required_integer(key, 0, INT64_MAX);
    reader.allow_unknown();
    return reader.finish();
}

bool may_run(const Task& task) {
    if (!task.attempt || task.state != TaskState::kRunning) return false;
    const Step step = task.attempt->step;
    return step == Step::kSubmitting || step == Step::kQueued || step == Step::kRunning;
}

Task cleaning_task(const std::string& facility) {
    Task task;
    task.params = CleanParams{};
    task.facility = facility;
    task.attempts_max = 1;
    return task;
}

std::string batch_job_name(const Task& task) {
    check(task.attempt.has_value(), "batch_job_name() of a task without an attempt");
    return "atoll-" + task.id + "-" + std::to_string(task.attempt->number);
}

}  // namespace atl::dispatch
