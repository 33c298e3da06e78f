#include <gtest/gtest.h>

#include "tests/e2e/federation_fixture.h"

namespace atl {
namespace {

using json::Json;

constexpr int kRounds = 2;

// What is killed, and at which event: while the first round trains, so that another one follows, or while the second is
// aggregated, so that there is one before it.
struct Death {
    const char* component;
    const char* event;
};

constexpr char kTraining[] = "atoll.round.opened.v1";
constexpr char kAggregating[] = "atoll.round.closed.v1";

class KillServiceTest : public e2e::FederationTest, public testing::WithParamInterface<Death> {};

TEST_P(KillServiceTest, AJobSurvivesItsDeathInARoundAndCountsEveryUpdateOnce) {
    e2e::SmallFederation& federation = *federation_;
    const auto [component, at] = GetParam();
    const std::string name = std::string("kill-") + component + (at == std::string(kTraining) ? "" : "-late");
    const auto id = federation.coordinator().submit(federation.job_spec(name, kRounds));
    ASSERT_TRUE(id.ok()) << id.error().message;
    const int round = at == std::string(kTraining) ? 1 : 2;
    bool killed = false;
    const auto on_event = [&](const Json& event) {
        if (killed || event["type"] != at || event["data"]["round"] != round) return;
        killed = true;
        ASSERT_TRUE(federation.kill_component(component).ok());
        const Status status = federation.up();
        ASSERT_TRUE(status.ok()) << status.error().message;
    };
    // up() makes a new client: follow with one of our own.
    demo::Coordinator follower(federation.address());
    const auto state = follower.follow(*id, std::chrono::seconds(240), on_event);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_TRUE(killed);
    EXPECT_EQ(*state, "completed");
    EXPECT_EQ(federation.count_versions(name, "global").value(), kRounds);
    EXPECT_EQ(federation.count_versions(name, "update").value(), 2 * kRounds);
}

INSTANTIATE_TEST_SUITE_P(Each, KillServiceTest,
                         testing::Values(Death{"registry", kTraining}, Death{"store", kTraining},
                                         Death{"dispatch", kTraining}, Death{"aggregation", kTraining},
                                         Death{"gateway", kTraining}, Death{"kafka", kTraining},
                                         Death{"postgres", kTraining}, Death{"store", kAggregating},
                                         Death{"dispatch", kAggregating}, Death{"aggregation", kAggregating},
                                         Death{"kafka", kAggregating}, Death{"postgres", kAggregating}),
                         [](const auto& one) {
                             return std::string(one.param.component) +
                                    (one.param.event == std::string(kTraining) ? "WhileTraining" : "WhileAggregating");
                         });

}  // namespace
}  // namespace atl
