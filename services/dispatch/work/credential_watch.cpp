#include "services/dispatch/work/credential_watch.h"

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/metrics.h"
#include "services/dispatch/sites/transport/credentials.h"
#include "services/dispatch/sites/transport/ssh_master.h"
#include "shared/auth/certificate.h"
#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/http/client/server_certificate.h"
#include "shared/log/log.h"
#include "shared/metrics/common.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::minutes kInterval{1};
constexpr std::chrono::seconds kGatewayTimeMax{10};
constexpr std::int64_t kFacilitiesMax = 1000;

}  // namespace

CredentialWatch::CredentialWatch(pg::Pool& pool, const Settings& settings, metrics::Registry& metrics)
    : pool_(pool), settings_(settings), metrics_(metrics) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
        do {
            if (const Status status = contained([&] { return look(stop); }); !status.ok())
                spdlog::warn("when the certificates for facilities end: {}", describe(status.error()));
        } while (wait_unless_stopped(stop, kInterval));
    });
}

Status CredentialWatch::look(const std::stop_token& stop) {
    look_at_gateway();
    return look_at_facilities(stop);
}

// Of one that does not answer what was seen last holds. Who vouches for the certificate is for those to say who come
// there.
void CredentialWatch::look_at_gateway() {
    if (!settings_.store_url_for_sites.starts_with("https://")) return;
    const auto shown = http::server_certificate(settings_.store_url_for_sites, kGatewayTimeMax);
    const auto end_s = shown.ok() ? auth::certificate_end_s(*shown) : Result<std::int64_t>(shown.error());
    if (end_s.ok())
        metrics_.gauge(metrics::kCommon["atoll_certificate_expiry_timestamp_seconds"], {{"use", "gateway"}})
            .Set(static_cast<double>(*end_s));
    if (!end_s.ok() && !is_gateway_away_)
        spdlog::warn("cannot see when the certificate at {} ends: {}", settings_.store_url_for_sites,
                     describe(end_s.error()));
    is_gateway_away_ = !end_s.ok();
}

Status CredentialWatch::look_at_facilities(const std::stop_token& stop) {
    std::vector<StoredFacility> facilities;
    {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(facilities, list_facilities(*connection, "", kFacilitiesMax));
    }
    std::vector<metrics::Sample> ends, logins;
    for (const StoredFacility& one : facilities) {
        if (stop.stop_requested()) return {};
        if (one.facility.transport.kind != TransportKind::kSsh) continue;
        if (const auto end_s = certificates_end_s(read_credentials(one.facility.transport)))
            ends.push_back({{{"facility", one.facility.name}}, static_cast<double>(*end_s)});
        logins.push_back({{{"facility", one.facility.name}},
                          static_cast<double>(logins_left(one.facility.transport, settings_.ssh))});
    }
    metrics_.set_all(kMetrics["atoll_facility_credential_expiry_timestamp_seconds"], ends);
    metrics_.set_all(kMetrics["atoll_facility_login_budget_remaining"], logins);
    return {};
}

}  // namespace atl::dispatch
