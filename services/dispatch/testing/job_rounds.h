#pragma once

#include <gtest/gtest.h>

#include <string>

#include "services/dispatch/domain/round_machine.h"

// A job of two rounds at two sites, and what the database does with decisions about it, for tests of the round machine.
namespace atl::dispatch {

inline JobView new_job() {
    JobView job;
    job.id = "j";
    job.spec = parse_job_spec(json::Json::parse(R"({"name": "n", "model": {"name": "m", "version": "v"}, "rounds": 2,
        "participants": [{"facility": "a", "dataset": "da"}, {"facility": "b", "dataset": "db"}],
        "training": {"steps": 5, "seed": 7}, "strategy": {"name": "fedavg", "weighting": "uniform"}})"))
                   .value();
    job.base = "base";
    return job;
}

// Plays the database: applies what was decided.
inline void take(JobView& job, const JobDecision& decision) {
    if (decision.job_state) job.state = *decision.job_state;
    for (const auto& [facility, record] : decision.records) job.records[facility] = record;
    for (const auto& round : decision.rounds) {
        std::erase_if(job.closed, [&](const Round& r) { return r.number == round.number; });
        if (round.state == RoundState::kClosed && !round.evaluated) job.closed.push_back(round);
        if (round.number >= job.round.number) job.round = round;
    }
    for (Task task : decision.new_tasks) {
        task.id = "t" + std::to_string(job.tasks.size());
        job.tasks.push_back(task);
    }
}

inline Task& task_of(JobView& job, TaskKind kind, std::int64_t round, const std::string& facility) {
    for (auto& task : job.tasks)
        if (task.kind() == kind && task.round == round && task.facility == facility) return task;
    ADD_FAILURE() << "no such task";
    return job.tasks.front();
}

// Its training has handed in an update, FACILITY with the round's number.
inline void train(JobView& job, std::int64_t round, const std::string& facility) {
    Task& task = task_of(job, TaskKind::kTrain, round, facility);
    task.state = TaskState::kDone;
    task.result = {{"version", facility + std::to_string(round)}, {"samples", 10}, {"tokens", 100}};
}

// Those of the current round of a job of a and b: it is with the aggregation then.
inline void train_both(JobView& job) {
    for (const char* facility : {"a", "b"}) train(job, job.round.number, facility);
    take(job, advance_job(job, 0));
}

}  // namespace atl::dispatch
