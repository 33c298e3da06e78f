#include "services/dispatch/work/credential_watch.h"

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/metrics.h"
#include "services/dispatch/sites/transport/credentials.h"
#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::minutes kInterval{5};
constexpr std::int64_t kFacilitiesMax = 1000;

}  // namespace

CredentialWatch::CredentialWatch(pg::Pool& pool, metrics::Registry& metrics) : pool_(pool), metrics_(metrics) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
        do {
            if (const Status status = contained([&] { return look(stop); }); !status.ok())
                spdlog::warn("when the certificates for facilities end: {}", describe(status.error()));
        } while (wait_unless_stopped(stop, kInterval));
    });
}

Status CredentialWatch::look(const std::stop_token& stop) {
    std::vector<StoredFacility> facilities;
    {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(facilities, list_facilities(*connection, "", kFacilitiesMax));
    }
    std::vector<metrics::Sample> ends;
    for (const StoredFacility& one : facilities) {
        if (stop.stop_requested()) return {};
        if (one.facility.transport.kind != TransportKind::kSsh) continue;
        if (const auto end_s = certificates_end_s(read_credentials(one.facility.transport)))
            ends.push_back({{{"facility", one.facility.name}}, static_cast<double>(*end_s)});
    }
    metrics_.set_all(kMetrics["atoll_facility_credential_expiry_timestamp_seconds"], ends);
    return {};
}

}  // namespace atl::dispatch
