// What commands ask of a coordinator, and what they say without one.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <regex>
#include <string>

#include "shared/aggregate/strategy_table.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

TEST(JobInitTest, ANewJobFileShowsEveryStrategyAndItsSettings) {
    const std::string shown = run_command({ATOLL_PROGRAM, "job", "init"})->out;
    for (const aggregate::StrategyRow& row : aggregate::strategy_rows()) {
        EXPECT_NE(shown.find(row.name), std::string::npos) << row.name;
        for (const auto* setting : row.numbers)
            EXPECT_NE(shown.find(std::string(setting->key) + ":"), std::string::npos) << setting->key;
    }
}

TEST(DoctorTest, ServicesThatAreAwayAreAskedOnceAndAllAtOnce) {
    std::latch all_asked(4);
    std::atomic<int> asked = 0;
    const http::TestServer server([&](http::Server& routes) {
        for (const std::string service : {"/registry", "/store", "/dispatch", "/aggregation"}) {
            routes.route(http::Method::kGet, service + "/readyz", http::Access::open(), [&](const http::Request&) {
                all_asked.arrive_and_wait();  // one after another they would each take doctor's whole patience
                return http::Response::problem(unavailable("it is away"));
            });
            routes.route(http::Method::kGet, service + "/v1/metrics", http::Access::open(), [&](const http::Request&) {
                ++asked;
                return http::Response::problem(unavailable("waited for long"));
            });
        }
    });
    CommandOptions options;
    options.environment = {{"ATOLL_TOKEN", server.token(auth::Role::kViewer)}};
    const auto told = run_command({ATOLL_PROGRAM, "doctor", "--gateway", server.url()}, options);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->exit_code, 1) << told->out << told->err;
    const std::regex reason("it is away");
    EXPECT_EQ(std::distance(std::sregex_iterator(told->out.begin(), told->out.end(), reason), {}), 4) << told->out;
    EXPECT_EQ(told->out.find("waited for long"), std::string::npos) << told->out;
    EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace atl::cli
