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

// Counts each phase of a round once when it has ended, and with a closed round its updates. What ended before the first
// call was another process's to count.
class RoundCounter {
  public:
    Status look(pg::Connection& connection, metrics::Registry& metrics);

  private:
    std::optional<std::int64_t> since_ms_;
    std::set<EndedPhase> counted_;  // of those that the database still tells of
};

}  // namespace atl::dispatch
