#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/aggregation/db/repository.h"
#include "services/aggregation/settings.h"
#include "services/aggregation/work/remote_models.h"
#include "shared/metrics/metrics.h"

namespace atl::aggregation {

// The names under which this process leases work: one for each piece, as long as a thread has it in hand. What a thread
// had to drop, because the database was away when it was to be saved or given back, is so never renewed again, and
// somebody takes it over.
class LeaseHolder {
  public:
    class Lease {
      public:
        explicit Lease(LeaseHolder& held);
        ~Lease();
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        const std::string& name() const { return name_; }

      private:
        LeaseHolder& held_;
        const std::string name_;
    };
    explicit LeaseHolder(std::string prefix = {}) : prefix_(std::move(prefix)) {}  // of the names
    std::vector<std::string> names() const;

  private:
    const std::string prefix_;
    mutable std::mutex mutex_;
    std::set<std::string> names_;
};

// Does leased work, one piece at a time. One thread. Holds no database connection while it reads and writes models.
class Worker {
  public:
    Worker(pg::Pool& pool, const Settings& settings, LeaseHolder& held, metrics::Registry& metrics);

    // False if there was nothing to do. An Error: the database is not to be had; the lease of work taken by then runs
    // out.
    Result<bool> work_once();

  private:
    Status perform(const Claim& claim);
    Status plan(const Claim& claim);
    Status make_part(const Claim& claim);
    Status publish(const Claim& claim);
    Status make_again(const Claim& claim, const std::set<std::string>& missing);
    Status handle_failure(const Claim& claim, Error error);
    // An update is to blame: the round goes on without it while its quorum holds. False: the claim is stale.
    Result<bool> refuse(pg::Transaction& transaction, const Claim& claim, const Error& error);
    Result<bool> fail(pg::Transaction& transaction, const Claim& claim, const std::string& error,
                      const std::vector<RefusedUpdate>& refused);
    Status open(const Claim& claim);  // makes round_ and models_ those of the claim's plan

    pg::Pool& pool_;
    const Settings& settings_;
    LeaseHolder& held_;
    prometheus::Counter& parts_;
    prometheus::Counter& bytes_;
    prometheus::Counter& stale_;
    prometheus::Counter& failures_;
    std::optional<std::pair<std::int64_t, std::int64_t>> opened_;  // the aggregation and plan of round_ and models_
    ClosedRound round_;
    std::optional<RemoteModels> models_;
    std::optional<std::size_t> at_fault_;  // which of round_'s updates spoilt the work in hand
};

}  // namespace atl::aggregation
