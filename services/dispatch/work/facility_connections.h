#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/settings.h"
#include "services/dispatch/sites/site.h"
#include "services/dispatch/sites/stream_turns.h"
#include "services/dispatch/sites/transport/transport.h"
#include "services/dispatch/work/silent_queues.h"

namespace atl::dispatch {

// Makes a facility's site.
using SiteFactory = std::function<std::unique_ptr<Site>(const Facility&)>;

// What an error that says nothing of an attempt comes to. Looking whether one more login is allowed costs the site
// nothing; a batch system that is back is to be found soon.
Unreachable unreachable(const Error& error);

// The ways to the facilities' sites: one connection a facility, kept between calls. Thread-safe. Holds on to what it is
// given.
class FacilityConnections {
  public:
    // Without a factory sites are what their transports lead to.
    explicit FacilityConnections(const Settings& settings, SiteFactory make_site = {});

    // Ends the scripts that run, for good: they give no answer.
    void stop() { stop_.request_stop(); }
    bool is_stopped() const { return stop_.stop_requested(); }

    // For what people ask: it never takes the last session from the site's work.
    std::unique_ptr<Site> site(const Facility& facility);
    // For one step of a task, whose scripts share their time.
    std::unique_ptr<Site> site_for_step(const Facility& facility);
    // What a run there needs, tried: tools, directories, programs, the way from there to the store.
    SiteCheck check(const Facility& facility, std::int64_t now_ms);
    // kInvalidArgument: nothing there can reach the store.
    Status require_way_to_store(const Facility& facility) const { return require_store_url(facility, settings_); }
    // Whether the facility's batch system answers at all; what it says is noted.
    Status ping_batch(const Facility& facility, std::int64_t now_ms);
    // What the facility's host shows now. kConflict: it is this machine.
    Result<std::string> show_host_key(const Facility& facility) const;
    // The command that logs in there on this machine, asking whoever runs it. kConflict: there is nothing to log in to.
    Result<std::vector<std::string>> login_command(const Facility& facility) const;
    // Ends the connection, which is made anew by whoever needs it.
    void disconnect(const std::string& facility);

    const PollPolicy& poll_policy(const Facility& facility) const;
    // Of all facilities; what is asked through these connections is noted there by whoever asks.
    SilentQueues& silent_queues() { return silent_queues_; }

  private:
    std::shared_ptr<Transport> transport(const Facility& facility);
    std::unique_ptr<Site> site_through(const Facility& facility, std::shared_ptr<Transport> transport);

    const Settings& settings_;
    const SiteFactory make_site_;
    StreamTurns stream_turns_;
    std::stop_source stop_;
    std::mutex mutex_;
    struct Connection {
        TransportSpec spec;
        std::shared_ptr<Transport> transport;
    };
    std::map<std::string, Connection> connections_;  // by facility
    SilentQueues silent_queues_;
};

}  // namespace atl::dispatch
