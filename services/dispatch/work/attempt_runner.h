#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/domain/update_check.h"
#include "services/dispatch/settings.h"
#include "services/dispatch/sites/site.h"
#include "services/dispatch/sites/transport/transport.h"
#include "services/dispatch/work/answer_cache.h"
#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Makes a facility's site.
using SiteFactory = std::function<std::unique_ptr<Site>(const Facility&)>;

// Does single steps of tasks at their facilities. Every step can be repeated: what it leaves behind is found again.
// Thread-safe. Holds on to what it is given.
class AttemptRunner {
  public:
    // Without a factory sites are what their transports lead to.
    AttemptRunner(const Settings& settings, const Catalog& catalog, auth::Issuer issuer, pg::Pool& pool,
                  SiteFactory make_site = {});

    // Ends the scripts that run, for good: their outcome is Unreachable.
    void stop() { stop_.request_stop(); }
    bool is_stopped() const { return stop_.stop_requested(); }

    // The facility with its transport, which is kept between calls.
    std::unique_ptr<Site> site(const Facility& facility);
    // What a run there needs, tried: tools, directories, programs, the way from there to the store.
    Result<std::vector<SiteCheck>> check_facility(const Facility& facility) {
        return site(facility)->check(settings_.store_url_for_sites);
    }
    const PollPolicy& poll_policy(const Facility& facility) const;

    // The batch script of the task's attempt; nothing is asked of the site.
    Result<std::string> script(const Task& task, const Facility& facility);

    // The step that the task's attempt stands at.
    Outcome run(const Task& task, const Facility& facility, std::int64_t now_ms);
    // Ends the attempt's batch job.
    Outcome cancel(const Task& task, const Facility& facility);

  private:
    // An error becomes an outcome in run().
    Result<Outcome> run_step(const Task& task, Site& site, std::int64_t now_ms);
    Result<Outcome> stage(const Task& task, Site& site);
    Result<Outcome> submit(const Task& task, Site& site);
    Result<Outcome> observe(const Task& task, Site& site, std::int64_t now_ms);
    Result<AnswerCache<Look>::Found> look(const Task& task, Site& site, std::int64_t now_ms);
    Result<AnswerCache<BatchAnswer>::Found> queue_status(const Task& task, Site& site, std::int64_t now_ms);
    // The tasks whose attempts a site's batch system may know, this one first, then those that were not looked at for
    // longest.
    Result<std::vector<Task>> tasks_beside(const Task& task) const;
    Result<Outcome> collect(const Task& task, Site& site);
    Result<Outcome> push_update(const Task& task, const TrainParams& train, Site& site);
    Result<Outcome> clean(const Task& task, Site& site);
    // For the site's transfers: reads the versions that the task needs and, where it trains, writes its update.
    Result<std::string> issue_token(const Task& task) const;

    const Settings& settings_;
    const Catalog& catalog_;
    auth::Issuer issuer_;
    pg::Pool& pool_;
    const SiteFactory make_site_;
    AnswerCache<Look> looks_;
    AnswerCache<BatchAnswer> queue_status_;
    std::stop_source stop_;
    std::mutex mutex_;
    struct Connection {
        TransportSpec spec;
        std::shared_ptr<Transport> transport;
    };
    std::map<std::string, Connection> connections_;  // by facility
};

}  // namespace atl::dispatch
