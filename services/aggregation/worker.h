#pragma once

#include <optional>
#include <string>

#include "services/aggregation/remote_models.h"
#include "services/aggregation/repository.h"
#include "services/aggregation/settings.h"
#include "shared/metrics/metrics.h"

namespace atl::aggregation {

// Does leased work, one piece at a time. One thread. Holds no database connection while it reads and writes models.
class Worker {
  public:
    Worker(pg::Pool& pool, const Settings& settings, std::string name, metrics::Registry& metrics);

    // False if there was nothing to do. An Error: the database is not to be had; work taken by then stays leased.
    Result<bool> work_once();

  private:
    Status perform(const Claim& claim);
    Status plan(const Claim& claim);
    Status make_part(const Claim& claim);
    Status publish(const Claim& claim);
    Status handle_failure(const Claim& claim, const Error& error);
    Status open(std::int64_t aggregation);  // makes round_ and models_ those of the aggregation

    pg::Pool& pool_;
    const Settings& settings_;
    const std::string name_;
    prometheus::Counter& parts_;
    prometheus::Counter& bytes_;
    prometheus::Counter& stale_;
    prometheus::Counter& failures_;
    std::int64_t opened_ = -1;  // the aggregation that round_ and models_ belong to
    ClosedRound round_;
    std::optional<RemoteModels> models_;
};

}  // namespace atl::aggregation
