#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "shared/base/file.h"
#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

using json::Json;

class DeltaJobTest : public testing::Test {
  protected:
    void SetUp() override {
        const Status ready = federation_.set_up();
        ASSERT_TRUE(ready.ok()) << ready.error().message;
    }
    Json rounds_of(const std::string& name, const Json& training, int count = 3) {
        Json spec = federation_.job_spec(name, count);
        spec["training"]["deterministic"] = true;
        spec["training"].update(training);
        const auto id = federation_.coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        const auto state = federation_.coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        EXPECT_TRUE(state.ok() && *state == "completed") << name;
        const CommandResult verified = federation_.run_atoll({"round", "verify", *id, std::to_string(count), "--json"});
        EXPECT_EQ(verified.exit_code, 0) << verified.err;
        const Json rounds = federation_.coordinator().rounds(*id)->at("items");
        EXPECT_EQ(rounds.size(), static_cast<std::size_t>(count) + 1);
        for (const Json& round : rounds)
            for (const Json& task : round.at("tasks")) {
                EXPECT_EQ(task.at("state"), "done") << task;
                EXPECT_FALSE(task.at("kind") == "train" && task.at("metrics").contains("rounding_error_anew")) << task;
            }
        return rounds;
    }
    static double last_loss(const Json& rounds) {
        double sum = 0;
        int count = 0;
        for (const Json& task : rounds.back().at("tasks"))
            if (task.at("kind") == "train") {
                sum += task.at("metrics").at("loss").get<double>();
                ++count;
            }
        return sum / count;
    }

    e2e::SmallFederation federation_;
};

// Sites, store and aggregation with every program as it is: the same updates give the same models, and what the
// rounding costs is little.
TEST_F(DeltaJobTest, JobsOfSmallUpdatesAreRepeatableAndLearnAsOthersDo) {
    const Json whole = rounds_of("whole", Json::object());
    for (const char* format : {"int8", "int4"}) {
        const Json first = rounds_of(std::string("first-") + format, {{"update_format", format}});
        const Json again = rounds_of(std::string("again-") + format, {{"update_format", format}});
        for (std::size_t round = 1; round < first.size(); ++round) {
            EXPECT_EQ(first[round]["version"], again[round]["version"]) << format << " " << round;
            EXPECT_NE(first[round]["version"], whole[round]["version"]) << format << " " << round;
        }
        EXPECT_NEAR(last_loss(first), last_loss(whole), 0.02 * last_loss(whole)) << format;
    }
}

TEST_F(DeltaJobTest, AdaptersTravelSmallTooAndTheOptimizerIsKeptBeside) {
    const Json lora = {{"lora_rank", 2}};
    Json small = {{"lora_rank", 2}, {"update_format", "int4"}, {"keep_optimizer", true}};
    const Json rounds = rounds_of("small", small), again = rounds_of("again", small);
    EXPECT_NE(rounds.back()["version"], rounds_of("whole", lora).back()["version"]);
    EXPECT_EQ(rounds.back()["version"], again.back()["version"]);
}

}  // namespace
}  // namespace atl
