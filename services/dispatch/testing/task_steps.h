#pragma once

#include <string>
#include <vector>

#include "services/dispatch/domain/task_machine.h"

// Tasks at a step, and what is seen of them, for tests of the task machine.
namespace atl::dispatch {

inline const PollPolicy kPollPolicy;

inline Task train_task() {
    Task task;
    task.id = "t1";
    task.job = "j1";
    task.round = 2;
    task.facility = "leonardo";
    task.attempts_max = 2;
    task.params = TrainParams{};
    return begin_attempt(task).task;
}

inline Task at_step(Step step) {
    Task task = train_task();
    task.attempt->step = step;
    return task;
}

inline std::vector<std::string> printed(const std::vector<json::Json>& lines) {
    std::vector<std::string> texts;
    for (const json::Json& line : lines) texts.push_back(line.dump());
    return texts;
}

inline Observed ended(std::int64_t exit_code, const std::vector<json::Json>& lines = {}) {
    Observed watched;
    watched.started = true;
    watched.exit_code = exit_code;
    watched.lines = printed(lines);
    watched.log_offset = 100;
    return watched;
}

inline const json::Json kSummary = {{"summary", true}, {"samples", 320}, {"tokens", 40960}, {"loss", 4.5}};

// A look that found a step.
inline Observed ended_step() {
    Observed watched;
    watched.started = true;
    watched.lines = printed({{{"step", 7}, {"loss", 5.0}}});
    return watched;
}

// A run that made a step and stopped for time.
inline Observed out_of_time(int first_step = 7) {
    return ended(
        0, {{{"step", first_step}, {"loss", 5.0}}, {{"summary", true}, {"steps", first_step}, {"resumable", true}}});
}

}  // namespace atl::dispatch
