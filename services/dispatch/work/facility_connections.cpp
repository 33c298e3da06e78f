#include "services/dispatch/work/facility_connections.h"

#include <algorithm>
#include <utility>

#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/sites/stream_site.h"
#include "services/dispatch/sites/transport/ssh_master.h"
#include "services/dispatch/work/step_transport.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

constexpr std::int64_t kLoginPause_ms = 15000;
constexpr std::size_t kUnreachableBytesMax = 2000;

class PeoplesTransport : public Transport {
  public:
    explicit PeoplesTransport(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}
    Result<CommandResult> run(const RemoteScript& script) override {
        RemoteScript asked = script;
        asked.is_for_people = true;
        return transport_->run(asked);
    }

  private:
    const std::shared_ptr<Transport> transport_;
};

}  // namespace

Unreachable unreachable(const Error& error) {
    if (error.cause == Cause::kBatchSystem)
        return {json::printable(error.message), false, SilentQueues::kPause_ms, /*is_of_batch_system=*/true};
    const bool is_soon = error.cause == Cause::kLoginsSpent;
    return {shorten(json::printable(describe(error)), kUnreachableBytesMax), is_of_facility(error),
            is_soon ? kLoginPause_ms : 0};
}

FacilityConnections::FacilityConnections(const Settings& settings, SiteFactory make_site)
    : settings_(settings),
      make_site_(std::move(make_site)),
      stream_turns_(std::max<std::int64_t>(1, settings.workers / 2)) {}

std::unique_ptr<Site> FacilityConnections::site(const Facility& facility) {
    if (make_site_) return make_site_(facility);
    return site_through(facility, std::make_shared<PeoplesTransport>(transport(facility)));
}

std::unique_ptr<Site> FacilityConnections::site_for_step(const Facility& facility) {
    if (make_site_) return make_site_(facility);
    return site_through(facility, std::make_shared<StepTransport>(transport(facility)));
}

std::shared_ptr<Transport> FacilityConnections::transport(const Facility& facility) {
    std::shared_ptr<Transport> before;  // ends without the lock: its connection takes seconds to close
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[facility.name];
    if (connection.transport == nullptr || connection.spec != facility.transport) {
        before = std::move(connection.transport);
        connection = {facility.transport, make_transport(facility, settings_.ssh, stop_.get_token())};
    }
    return connection.transport;
}

std::unique_ptr<Site> FacilityConnections::site_through(const Facility& facility,
                                                        std::shared_ptr<Transport> transport) {
    if (facility.transport.data == DataPath::kSsh)
        return std::make_unique<StreamSite>(facility, std::move(transport), "", stream_turns_);
    // At a remote site nothing is known of our own directories: there the programs are found in PATH.
    return std::make_unique<ScriptSite>(facility, std::move(transport),
                                        facility.transport.kind == TransportKind::kLocal ? settings_.programs : "");
}

SiteCheck FacilityConnections::check(const Facility& facility, std::int64_t now_ms) {
    SiteCheck found = site(facility)->check({store_url_for(facility, settings_), static_cast<double>(now_ms) / 1000});
    if (found.no_batch_answer && found.no_batch_answer->empty()) silent_queues_.note_answer(facility.name);
    return found;
}

Status FacilityConnections::ping_batch(const Facility& facility, std::int64_t now_ms) {
    const Status answered = site_for_step(facility)->ping_batch();
    silent_queues_.note(facility.name, answered, now_ms);
    return answered;
}

Result<std::string> FacilityConnections::show_host_key(const Facility& facility) const {
    if (facility.transport.kind != TransportKind::kSsh)
        return conflict(facility.name + " is this machine: it has no host key");
    return read_host_key(facility.transport, settings_.ssh, stop_.get_token());
}

Result<std::vector<std::string>> FacilityConnections::login_command(const Facility& facility) const {
    if (facility.transport.kind != TransportKind::kSsh)
        return conflict(facility.name + " is this machine: nobody logs in to it");
    return dispatch::login_command(facility.name, facility.transport, settings_.ssh);
}

void FacilityConnections::disconnect(const std::string& facility) {
    silent_queues_.note_answer(facility);
    Connection before;  // ends without the lock
    const std::lock_guard lock(mutex_);
    if (const auto found = connections_.find(facility); found != connections_.end()) {
        before = std::move(found->second);
        connections_.erase(found);
    }
}

const PollPolicy& FacilityConnections::poll_policy(const Facility& facility) const {
    return facility.transport.kind == TransportKind::kSsh ? settings_.ssh_poll_policy : settings_.local_poll_policy;
}

}  // namespace atl::dispatch
