#pragma once

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/db/events.h"
#include "services/dispatch/db/jobs.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

struct AggregationPatience {
    std::chrono::milliseconds look{5'000};         // between two looks at the rounds
    std::chrono::milliseconds unsent{10'000};      // that an event may wait for Kafka
    std::chrono::milliseconds unanswered{60'000};  // without an event, before aggregation itself is asked
    std::chrono::milliseconds ask{30'000};         // between two questions about one round
};

// A thread that looks after the rounds which wait for their aggregation: where events do not come, as Kafka is away or
// a consumer has lost them, it asks aggregation itself, which takes the round up or tells what became of it. What
// stands in the way is written down with the round, for those who wait.
class AggregationWatch {
  public:
    AggregationWatch(pg::Pool& pool, const Catalog& catalog, const Topics& topics, AggregationPatience patience = {});

  private:
    Status look();
    // What is in the way of the round; the answer, if there is one, has been applied.
    std::optional<Waiting> look_at(const RoundInAggregation& round);
    Status ask(const RoundInAggregation& round);
    Status apply(const RoundInAggregation& round, const json::Json& answer);

    pg::Pool& pool_;
    const Catalog& catalog_;
    const Topics& topics_;
    const AggregationPatience patience_;
    std::map<std::pair<std::string, std::int64_t>, std::chrono::steady_clock::time_point> next_ask_;
    std::jthread thread_;
};

}  // namespace atl::dispatch
