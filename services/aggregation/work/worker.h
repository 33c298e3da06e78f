#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/aggregation/db/repository.h"
#include "services/aggregation/settings.h"
#include "services/aggregation/work/remote_models.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/lease_workers.h"

namespace atl::aggregation {

// Does leased work, one piece at a time. One thread. Holds no database connection while it reads and writes models.
class Worker {
  public:
    Worker(pg::Pool& pool, Settings settings, std::string instance, pg::HeldLeases& held, metrics::Registry& metrics);

    // False if there was nothing to do. An Error: the database is not to be had; the lease of work taken by then runs
    // out.
    Result<bool> work_once();

  private:
    // What killed a process may kill the next one: it is done again a while later.
    Status wait_after_death(const Claim& claim);
    Status perform(const Claim& claim);
    Status plan(const Claim& claim);
    Status measure_part(const Claim& claim);
    // Decides how much each update counts.
    Status prepare(const Claim& claim);
    Status make_part(const Claim& claim);
    Status publish(const Claim& claim);
    Status make_again(const Claim& claim, const std::set<std::string>& missing);
    Status handle_failure(const Claim& claim, Error error);
    // An update is to blame: the round goes on without it while its quorum holds. False: the claim is stale.
    Result<bool> refuse(pg::Transaction& transaction, const Claim& claim, const round::RefusedUpdate& refused);
    Result<bool> fail(pg::Transaction& transaction, const Claim& claim, const std::string& error,
                      const std::vector<round::RefusedUpdate>& refused);
    Status open(const Claim& claim);  // makes round_ and models_ those of the claim's plan
    void close();
    // Makes the shares those that the measuring gave.
    Status use_shares(const Claim& claim);

    pg::Pool& pool_;
    const Settings settings_;
    const pg::LeaseTerms terms_;
    pg::HeldLeases& held_;
    prometheus::Counter& parts_;
    prometheus::Counter& bytes_;
    prometheus::Counter& stale_;
    prometheus::Counter& failures_;
    std::optional<std::pair<std::int64_t, std::int64_t>> opened_;  // the aggregation and plan of round_ and models_
    round::ClosedRound round_;
    std::optional<RemoteModels> models_;
    std::optional<aggregate::Prepared> prepared_;  // of models_, once they may be averaged
    struct Fault {
        std::size_t update;  // of round_
        bool is_stores;
    };
    std::optional<Fault> at_fault_;  // what spoilt the work in hand
};

// The threads that do the work of this process. `instance`: service::instance_name().
pg::LeaseWorkers::Options worker_options(pg::Pool& pool, const std::string& conninfo, const Settings& settings,
                                         metrics::Registry& metrics, const std::string& instance);

}  // namespace atl::aggregation
