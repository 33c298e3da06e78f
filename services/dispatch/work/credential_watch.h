#pragma once

#include <thread>

#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Looks every few minutes, in a thread of its own, when the ssh certificates with which facilities are reached end, and
// shows it as a metric.
class CredentialWatch {
  public:
    CredentialWatch(pg::Pool& pool, metrics::Registry& metrics);

  private:
    Status look(const std::stop_token& stop);

    pg::Pool& pool_;
    metrics::Registry& metrics_;
    std::jthread thread_;  // last: stopped first
};

}  // namespace atl::dispatch
