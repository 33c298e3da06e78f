#include "services/dispatch/domain/task.h"

#include <iterator>

#include "shared/base/check.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr const char* kTaskKinds[] = {"train", "evaluate", "prepare", "clean"};
constexpr const char* kTaskStates[] = {"pending", "running", "done", "failed", "cancelled"};
constexpr const char* kSteps[] = {"staging",    "submitting", "queued", "running",
                                  "collecting", "done",       "failed", "cancelled"};
constexpr const char* kJobStates[] = {"running", "paused", "completed", "failed", "cancelled"};
constexpr const char* kRoundStates[] = {"training", "aggregating", "closed", "failed"};

template <class Enum, std::size_t count>
Enum parse(const char* const (&words)[count], const std::string& word) {
    for (std::size_t i = 0; i < count; ++i)
        if (word == words[i]) return static_cast<Enum>(i);
    check(false, "unknown word \"" + word + "\"");
    return {};
}

template <std::size_t count, class Enum>
const char* to_word(const char* const (&words)[count], Enum value) {
    return words[static_cast<std::size_t>(value)];
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
TaskKind parse_task_kind(const std::string& word) {
    return parse<TaskKind>(kTaskKinds, word);
}
TaskState parse_task_state(const std::string& word) {
    return parse<TaskState>(kTaskStates, word);
}
Step parse_step(const std::string& word) {
    return parse<Step>(kSteps, word);
}
JobState parse_job_state(const std::string& word) {
    return parse<JobState>(kJobStates, word);
}
RoundState parse_round_state(const std::string& word) {
    return parse<RoundState>(kRoundStates, word);
}

bool is_finished(TaskState state) {
    return state != TaskState::kPending && state != TaskState::kRunning;
}

bool is_finished(JobState state) {
    return state != JobState::kRunning && state != JobState::kPaused;
}

Json progress_json(const Attempt& attempt) {
    Json lines;  // of a training its summary, of an evaluation its results
    if (attempt.summary) lines = to_json(*attempt.summary);
    for (const EvaluationLine& result : attempt.results) lines.push_back(to_json(result));
    return {{"continues", attempt.continues},
            {"failed_before", attempt.failed_before},
            {"step_failures", attempt.step_failures},
            {"log_offset", attempt.log_offset},
            {"log_lines", attempt.log_lines},
            {"partial_reads", attempt.partial_reads},
            {"lines", std::move(lines)},
            {"last_step", attempt.last_step ? to_json(*attempt.last_step) : Json()},
            {"queue_misses", attempt.queue_misses},
            {"missing_since_ms", attempt.missing_since_ms},
            {"batch_asked_ms", attempt.batch_asked_ms}};
}

void read_progress(const Json& progress, Attempt& attempt) {
    const auto member = [&](const char* key) { return progress.is_object() ? progress.value(key, Json()) : Json(); };
    const auto number = [&](const char* key, std::int64_t fallback) {
        const Json value = member(key);
        return value.is_number_integer() ? value.get<std::int64_t>() : fallback;
    };
    attempt.continues = number("continues", 0);
    attempt.failed_before = number("failed_before", attempt.number - 1);
    attempt.step_failures = number("step_failures", 0);
    attempt.log_offset = number("log_offset", 0);
    attempt.log_lines = number("log_lines", 0);
    attempt.partial_reads = number("partial_reads", 0);
    const Json lines = member("lines");
    attempt.summary = parse_summary_line(lines);
    attempt.results.clear();
    if (lines.is_array())
        for (const Json& line : lines)
            attempt.results.push_back(parse_evaluation_line(line).value_or(EvaluationLine()));
    attempt.last_step = parse_step_line(member("last_step"));
    attempt.queue_misses = number("queue_misses", 0);
    attempt.missing_since_ms = number("missing_since_ms", 0);
    attempt.batch_asked_ms = number("batch_asked_ms", 0);
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
