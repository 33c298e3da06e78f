#pragma once

#include <thread>

#include "services/dispatch/settings.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Looks every minute, in a thread of its own, when the ssh certificates with which facilities are reached end, how many
// logins they still allow, and when the certificate ends that the gateway shows to sites. It shows them as metrics.
class CredentialWatch {
  public:
    // `settings` outlives it.
    CredentialWatch(pg::Pool& pool, const Settings& settings, metrics::Registry& metrics);

  private:
    Status look(const std::stop_token& stop);

    Status look_at_facilities(const std::stop_token& stop);
    void look_at_gateway();

    pg::Pool& pool_;
    const Settings& settings_;
    metrics::Registry& metrics_;
    bool is_gateway_away_ = false;
    std::jthread thread_;  // last: stopped first
};

}  // namespace atl::dispatch
