#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/dispatch/db/federation.h"
#include "services/dispatch/db/tasks.h"
#include "shared/metrics/metrics.h"

namespace atl::dispatch {

// Shows what the federation does now.
void show(const FederationState& state, metrics::Registry& metrics);
void show(const std::vector<StateCount>& counts, metrics::Registry& metrics);

// Counts what one step of a task has come to, at `now_ms`: the time of the phase that it left, bytes moved, ends.
void count_step(const Task& before, const Task& after, std::int64_t now_ms, metrics::Registry& metrics);

// Counts each job once when it has ended, each phase of a round, and with a closed round its updates. What ended before
// the first call was another process's to count. A failed job that is resumed can end once more.
class EndCounter {
  public:
    Status look(pg::Connection& connection, metrics::Registry& metrics);

  private:
    Status look_at_rounds(pg::Connection& connection, metrics::Registry& metrics);
    Status look_at_jobs(pg::Connection& connection, metrics::Registry& metrics);

    std::optional<std::int64_t> since_ms_;
    std::set<EndedPhase> counted_;  // of those that the database still tells of
    std::set<EndedJob> counted_jobs_;
};

}  // namespace atl::dispatch
