#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;

// A job whose sites count their tokens, with the trainer itself: every program on the way takes the file beside an
// update. One site learns the answers alone.
TEST(RowWeightsJobTest, UpdatesBringTheirCountsAndAreEvaluatedWithThem) {
    e2e::SmallFederation federation({.templates = {{"b", "a question of some words: {{#answer}}{{text}}{{/answer}}"}}});
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
        const CommandResult verified = federation.run_atoll({"round", "verify", *id, "2", "--json"});
        EXPECT_EQ(verified.exit_code, 0) << verified.err;
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
        std::map<std::string, double> targets_a_row;
        for (const Json& task : weighed[round].at("tasks")) {
            EXPECT_EQ(task.at("state"), "done") << task;
            if (task.at("kind") == "train")
                targets_a_row[task.at("facility")] = task.at("tokens").get<double>() / task.at("samples").get<double>();
        }
        EXPECT_LT(targets_a_row.at("b"), 0.9 * targets_a_row.at("a")) << "the question's tokens are no targets";
        EXPECT_GT(targets_a_row.at("b"), 1);
    }
}

// The same of the mean gradients: they go up, their mean comes down with the model, and each site keeps its own.
TEST(ControlVariateJobTest, EachRoundIsCorrectedByWhatTheSitesLearnedInTheOneBefore) {
    e2e::SmallFederation federation;
    const Status ready = federation.set_up();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    // Of each round the trainings' losses by facility.
    const auto losses_of = [&](const std::string& name, const Json& strategy, const Json& training) {
        Json spec = federation.job_spec(name, 3);
        spec["training"]["deterministic"] = true;
        spec["training"].update(training);
        spec["strategy"].update(strategy);
        spec["evaluation"] = {{"at", Json::array()}};
        const auto id = federation.coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        const auto state = federation.coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        EXPECT_TRUE(state.ok() && *state == "completed") << name;
        // Of the last round: by then there is a mean of the control variates, and what an outer optimizer keeps.
        const CommandResult verified = federation.run_atoll({"round", "verify", *id, "3", "--json"});
        EXPECT_EQ(verified.exit_code, 0) << verified.err;
        Json losses = Json::array();
        const Json rounds = federation.coordinator().rounds(*id)->at("items");
        for (const Json& round : rounds) {
            losses.push_back(Json::object());
            for (const Json& task : round.at("tasks")) {
                if (task.at("kind") != "train") continue;
                EXPECT_FALSE(task.at("metrics").contains("control_variate_anew")) << task;
                losses.back()[task.at("facility").get<std::string>()] = task.at("metrics").at("loss");
            }
        }
        return losses;
    };
    const Json strategy = {{"control_variate", 0.7}};
    const Json corrected = losses_of("corrected", strategy, Json::object());
    const Json plain = losses_of("plain", Json::object(), Json::object());
    losses_of("outer", {{"outer", {{"lr", 1.1}, {"momentum", 0.3}}}}, Json::object());
    const std::string out = federation.path("without").string();
    const CommandResult without = federation.run_atoll(
        {"round", "verify", "corrected", "3", "--without", "b", "--dir", federation.path("fetched"), "--out", out});
    EXPECT_EQ(without.exit_code, 0) << without.err;
    EXPECT_NE(without.out.find("without b it would have been "), std::string::npos) << without.out;
    EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
    EXPECT_EQ(without.out.find("\nb "), std::string::npos) << without.out;
    // What stays of an earlier call is looked at again.
    const auto fetched = federation.path("fetched") / "base" / "config.json";
    ASSERT_TRUE(write_file_atomic(fetched, "{}").ok());
    EXPECT_NE(
        federation.run_atoll({"round", "verify", "corrected", "3", "--dir", federation.path("fetched")}).exit_code, 0);
    ASSERT_EQ(corrected.size(), 4U);
    EXPECT_EQ(corrected[1], plain[1]) << "the first round has nothing to be corrected by";
    for (std::size_t round = 2; round < 4; ++round)
        for (const char* facility : {"a", "b"})
            EXPECT_NE(corrected[round].at(facility), plain[round].at(facility)) << round;
    const Json small = losses_of("small", strategy, {{"update_format", "int4"}, {"keep_optimizer", true}});
    EXPECT_EQ(small[1], plain[1]);
    EXPECT_NE(small[2], plain[2]);
}

}  // namespace
}  // namespace atl
