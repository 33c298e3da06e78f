#include <gtest/gtest.h>

#include <chrono>

#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;

// A job whose sites keep their optimizers from round to round, with the trainer itself.
TEST(KeptOptimizerJobTest, EachRoundBeginsWithTheOptimizerOfTheOneBefore) {
    e2e::SmallFederation federation;
    const Status ready = federation.set_up();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto rounds_of = [&](const std::string& name, bool keeps) {
        Json spec = federation.job_spec(name, 3);
        spec["training"]["deterministic"] = true;
        spec["training"]["keep_optimizer"] = keeps;
        const auto id = federation.coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        const auto state = federation.coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        EXPECT_TRUE(state.ok() && *state == "completed") << name;
        return federation.coordinator().rounds(*id)->at("items");
    };
    const Json kept = rounds_of("kept", true), again = rounds_of("again", true), anew = rounds_of("anew", false);
    ASSERT_EQ(kept.size(), 4U);
    EXPECT_EQ(kept[1]["version"], anew[1]["version"]) << "the first round has none to begin with";
    EXPECT_NE(kept[2]["version"], anew[2]["version"]);
    for (std::size_t round = 1; round < kept.size(); ++round) {
        EXPECT_EQ(kept[round]["version"], again[round]["version"]) << round;
        int trainings = 0;
        for (const Json& task : kept[round].at("tasks")) {
            if (task.at("kind") != "train") continue;
            ++trainings;
            const Json& metrics = task.at("metrics");
            EXPECT_EQ(metrics.value("earlier_updates", std::int64_t{0}),
                      static_cast<std::int64_t>(round - 1) * metrics.at("steps").get<std::int64_t>())
                << task;
        }
        EXPECT_EQ(trainings, 2);
    }
}

}  // namespace
}  // namespace atl
