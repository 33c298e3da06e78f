#pragma once

#include <string>
#include <vector>

#include "services/dispatch/domain/site_output.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// What the federation does now, as the series of gauges: some for each facility, none for what has ended.
struct FederationState {
    std::vector<metrics::Sample> tasks;
    std::vector<metrics::Sample> waiting;
    std::vector<metrics::Sample> rounds;
    std::vector<metrics::Sample> round_ages_s;
    std::vector<metrics::Sample> facilities_up;
    std::vector<metrics::Sample> facilities_silent_s;
    std::vector<metrics::Sample> batch_systems_up;
    std::vector<metrics::Sample> perplexities;
    std::vector<metrics::Sample> expected_ends_s;
    std::vector<metrics::Sample> job_rounds;
    double round_age_ratio = 0;
    double due_tasks = 0;
    double due_task_age_s = 0;
    struct Training {
        std::string facility;
        std::string job;  // its name
        StepLine newest;
    };
    std::vector<Training> trainings;
};
Result<FederationState> read_federation_state(pg::Connection& connection);

// A phase of a round that has ended.
struct EndedPhase {
    std::string job;
    std::int64_t round = 0;
    std::string phase;  // "training", "aggregating", "evaluating"
    double seconds = 0;

    auto operator<=>(const EndedPhase&) const = default;
};
// What ended after `since` and within the last ten minutes.
Result<std::vector<EndedPhase>> ended_phases(pg::Connection& connection, std::int64_t since_ms);

// A job that has ended, and when.
struct EndedJob {
    std::string job;
    std::int64_t finished_ms = 0;
    std::string outcome;  // "completed", "failed", "cancelled"

    auto operator<=>(const EndedJob&) const = default;
};
// Those that ended after `since` and within the last ten minutes.
Result<std::vector<EndedJob>> ended_jobs(pg::Connection& connection, std::int64_t since_ms);

// What became of the updates that a closed round waited for: facility, outcome, count.
struct UpdateCount {
    std::string facility;
    std::string outcome;  // "accepted", "refused", "missing"
    std::int64_t count = 0;
};
Result<std::vector<UpdateCount>> count_updates(pg::Connection& connection, const std::string& job, std::int64_t round);

}  // namespace atl::dispatch
