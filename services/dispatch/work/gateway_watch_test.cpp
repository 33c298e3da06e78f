#include "services/dispatch/work/gateway_watch.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "shared/http/testing/test_server.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

bool within_a_minute(const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!holds() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(10));
    return holds();
}

TEST(GatewayWatchTest, AGatewayThatIsGoneShowsAsADependency) {
    metrics::Registry metrics;
    const auto shows = [&](const char* value) {
        return metrics.expose().find(std::string("atoll_ready{dependency=\"gateway\"} ") + value) != std::string::npos;
    };
    std::optional<http::TestServer> server(std::in_place, [](http::Server&) {});
    const GatewayWatch watch(server->url() + "/store", metrics, milliseconds(20));
    EXPECT_TRUE(within_a_minute([&] { return shows("1"); })) << "an answer of any kind: this one is 404";
    server.reset();
    EXPECT_TRUE(within_a_minute([&] { return shows("0"); })) << metrics.expose();
}

}  // namespace
}  // namespace atl::dispatch
