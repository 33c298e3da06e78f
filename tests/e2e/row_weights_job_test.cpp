#include <gtest/gtest.h>

#include <chrono>

#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;

// A job whose sites count their tokens, with the trainer itself: every program on the way takes the file beside an
// update.
TEST(RowWeightsJobTest, UpdatesBringTheirCountsAndAreEvaluatedWithThem) {
    e2e::SmallFederation federation;
    const Status ready = federation.set_up();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto rounds_of = [&](const std::string& name, const Json& strategy) {
        Json spec = federation.job_spec(name, 2);
        spec["training"]["deterministic"] = true;
        spec["strategy"].update(strategy);
        spec["evaluation"] = {{"models", "all"}};
        const auto id = federation.coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        const auto state = federation.coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        EXPECT_TRUE(state.ok() && *state == "completed") << name;
        return federation.coordinator().rounds(*id)->at("items");
    };
    const Json strategy = {{"row_weights", "tokens"}};
    const Json weighed = rounds_of("weighed", strategy), again = rounds_of("again", strategy);
    const Json mean = rounds_of("mean", Json::object());
    ASSERT_EQ(weighed.size(), 3U);
    for (std::size_t round = 1; round < weighed.size(); ++round) {
        ASSERT_EQ(weighed[round].at("version").get<std::string>().size(), 64U);
        EXPECT_EQ(weighed[round]["version"], again[round]["version"]) << round;
        EXPECT_NE(weighed[round]["version"], mean[round]["version"]) << round;
        for (const Json& task : weighed[round].at("tasks")) EXPECT_EQ(task.at("state"), "done") << task;
    }
}

}  // namespace
}  // namespace atl
