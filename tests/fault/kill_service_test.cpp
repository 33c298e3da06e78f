#include <gtest/gtest.h>

#include <memory>

#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;

constexpr int kRounds = 3;

class KillServiceTest : public testing::TestWithParam<const char*> {
  protected:
    static void SetUpTestSuite() {
        federation_ = std::make_unique<e2e::SmallFederation>();
        const Status status = federation_->set_up();
        ASSERT_TRUE(status.ok()) << status.error().message;
    }
    static void TearDownTestSuite() { federation_.reset(); }

    static std::unique_ptr<e2e::SmallFederation> federation_;
};

std::unique_ptr<e2e::SmallFederation> KillServiceTest::federation_;

TEST_P(KillServiceTest, AJobSurvivesItsDeathInARoundAndCountsEveryUpdateOnce) {
    e2e::SmallFederation& federation = *federation_;
    const std::string name = std::string("kill-") + GetParam();
    const auto id = federation.coordinator().submit(federation.job_spec(name, kRounds));
    ASSERT_TRUE(id.ok()) << id.error().message;
    bool killed = false;
    const auto on_event = [&](const Json& event) {
        if (killed || event["type"] != "atoll.round.opened.v1" || event["data"]["round"] != 2) return;
        killed = true;
        ASSERT_TRUE(federation.kill_component(GetParam()).ok());
        const Status status = federation.up();
        ASSERT_TRUE(status.ok()) << status.error().message;
    };
    // up() makes a new client: follow with one of our own.
    demo::Coordinator follower(federation.address());
    const auto state = follower.follow(*id, std::chrono::seconds(90), on_event);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_TRUE(killed);
    EXPECT_EQ(*state, "completed");
    EXPECT_EQ(federation.count_versions(name, "global").value(), kRounds);
    EXPECT_EQ(federation.count_versions(name, "update").value(), 2 * kRounds);
}

INSTANTIATE_TEST_SUITE_P(Each, KillServiceTest,
                         testing::Values("registry", "store", "dispatch", "aggregation", "gateway", "kafka",
                                         "postgres"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace atl
