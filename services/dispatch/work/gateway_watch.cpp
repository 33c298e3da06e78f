#include "services/dispatch/work/gateway_watch.h"

#include <memory>

#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/http/client/client.h"
#include "shared/log/log.h"
#include "shared/metrics/common.h"

namespace atl::dispatch {

GatewayWatch::GatewayWatch(const std::string& url, metrics::Registry& metrics, std::chrono::milliseconds interval) {
    http::ClientOptions options;
    options.base_url = url;
    options.timeout = std::chrono::seconds(10);
    options.attempts_max = 1;
    auto client = std::make_shared<http::Client>(options);
    thread_ = std::jthread([client, &metrics, interval](const std::stop_token& stop) {
        bool was_there = true;
        do {
            const Status answered = contained([&]() -> Status {
                const auto answer = client->call(http::Method::kGet, "/readyz");
                return answer.ok() ? Status() : Status(answer.error());
            });
            if (!answered.ok() && was_there)
                spdlog::warn("the gateway does not answer: {}", describe(answered.error()));
            was_there = answered.ok();
            metrics.gauge(metrics::kCommon["atoll_ready"], {{"dependency", "gateway"}}).Set(was_there ? 1 : 0);
        } while (wait_unless_stopped(stop, interval));
    });
}

}  // namespace atl::dispatch
