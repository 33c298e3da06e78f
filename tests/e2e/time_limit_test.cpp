#include <gtest/gtest.h>

#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;

// The real trainer at a real local facility, whose batch jobs are over after each step.
TEST(TimeLimitTest, ATrainingGoesOnInAsManyBatchJobsAsItNeeds) {
    e2e::SmallFederation federation;
    const Status ready = federation.set_up();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto train = [&](const std::string& name, const Json& more) {
        Json spec = federation.job_spec(name, 1);
        spec["training"]["deterministic"] = true;
        spec["training"].update(more);
        spec["evaluation"] = {{"at", Json::array()}};
        const auto id = federation.coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        const auto state = federation.coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        EXPECT_TRUE(state.ok() && *state == "completed");
        return federation.coordinator().rounds(*id).value()["items"].back();
    };
    const Json whole = train("whole", Json::object());
    const Json parts = train("parts", {{"time_limit", 1e-6}});
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(whole["tasks"][i]["attempt"], 1);
        EXPECT_EQ(parts["tasks"][i]["attempt"], 4) << "a step an attempt";
        EXPECT_EQ(parts["tasks"][i]["tokens"], whole["tasks"][i]["tokens"]);
        EXPECT_EQ(parts["tasks"][i]["version"], whole["tasks"][i]["version"]) << "bit for bit";
    }
}

}  // namespace
}  // namespace atl
