#include "services/dispatch/domain/task.h"

#include <iterator>

#include "shared/base/check.h"

namespace atl::dispatch {
namespace {

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
const char* word_of(const char* const (&words)[count], Enum value) {
    return words[static_cast<std::size_t>(value)];
}

}  // namespace

const char* to_string(TaskKind kind) {
    return word_of(kTaskKinds, kind);
}
const char* to_string(TaskState state) {
    return word_of(kTaskStates, state);
}
const char* to_string(Step step) {
    return word_of(kSteps, step);
}
const char* to_string(JobState state) {
    return word_of(kJobStates, state);
}
const char* to_string(RoundState state) {
    return word_of(kRoundStates, state);
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

Task cleaning_task(const std::string& facility) {
    Task task;
    task.kind = TaskKind::kClean;
    task.facility = facility;
    task.params = json::Json::object();
    task.attempts_max = 1;
    return task;
}

std::string operation_name(const Task& task) {
    check(task.attempt.has_value(), "operation_name() of a task without an attempt");
    return "atoll-" + task.id + "-" + std::to_string(task.attempt->number);
}

}  // namespace atl::dispatch
