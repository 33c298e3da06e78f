// What commands ask of a coordinator, and what they say without one.
#include <gtest/gtest.h>

#include <atomic>
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

TEST(DoctorTest, AServiceThatIsAwayIsAskedOnce) {
    std::atomic<int> asked = 0;
    const http::TestServer server([&](http::Server& routes) {
        for (const char* service : {"registry", "store", "dispatch", "aggregation"})
            routes.route(http::Method::kGet, "/" + std::string(service) + "/v1/metrics", http::Access::open(),
                         [&](const http::Request&) {
                             ++asked;
                             return http::Response::problem(unavailable("it is away"));
                         });
    });
    CommandOptions options;
    options.environment = {{"ATOLL_TOKEN", server.token(auth::Role::kViewer)}};
    const auto told = run_command({ATOLL_PROGRAM, "doctor", "--gateway", server.url()}, options);
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(told->exit_code, 1) << told->out << told->err;
    EXPECT_NE(told->out.find("it is away"), std::string::npos) << told->out;
    EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace atl::cli
