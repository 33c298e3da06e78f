#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "shared/metrics/metrics.h"

namespace atl::dispatch {

// Looks, in a thread of its own, whether the gateway answers by which the services reach one another, and shows it as
// atoll_ready{dependency="gateway"}: the gateway has no metrics, and whoever asks the services by their own ports would
// not notice that nobody else can.
class GatewayWatch {
  public:
    // `url`: of a service through it. Any answer to its /readyz counts, also that it is down: for that
    // path alone the gateway waits for no service.
    GatewayWatch(const std::string& url, metrics::Registry& metrics,
                 std::chrono::milliseconds interval = std::chrono::seconds(15));

  private:
    std::jthread thread_;
};

}  // namespace atl::dispatch
