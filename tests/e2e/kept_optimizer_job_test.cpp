#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

using json::Json;

// The trainer itself, with two faults that the first training of a round 2 finds as files in its work directory: it is
// killed between two steps, or what its site has kept of round 1 is cut short before it starts.
constexpr const char* kTrainer = R"sh(#!/bin/sh
work=$PWD/../../..
round_2() { [ "$1" = train ] && grep -q '"optimizer_name": "round 2 of' run.json; }
if round_2 "$1" && rm "$work/cut" 2>/dev/null; then
    kept=$(sed -n 's/.*"optimizer_from": "\(.*\)".*/\1/p' run.json).state/optimizer.safetensors
    head -c 5000 "$kept" >short && cat short >"$kept"
fi
if round_2 "$1" && rm "$work/kill" 2>/dev/null; then
    TRAINER "$@" &
    until grep -q '"step":2,' stdout.jsonl; do kill -0 $! || exit 0; done
    kill -9 $!
    wait $!
    exit
fi
exec TRAINER "$@"
)sh";

class KeptOptimizerJobTest : public testing::Test {
  protected:
    void SetUp() override {
        const fs::path programs = directory_.path() / "programs";
        fs::create_directory(programs);
        fs::permissions(directory_.path(), fs::perms(0711));
        fs::permissions(programs, fs::perms(0755));
        // Copies, as whoever runs them need not be able to enter the directory of the build.
        fs::copy_file(e2e::SmallFederation::program("atoll"), programs / "atoll");
        const std::string trainer = programs / "real-trainer";
        fs::copy_file(e2e::SmallFederation::program("atoll-trainer"), trainer);
        ASSERT_TRUE(
            write_file_atomic(programs / "atoll-trainer", replace_all(kTrainer, "TRAINER", trainer), 0755).ok());
        federation_.emplace(e2e::FederationOptions{.directory = directory_.path(), .site_programs = programs});
        const Status ready = federation_->set_up();
        ASSERT_TRUE(ready.ok()) << ready.error().message;
    }

    Json rounds_of(const std::string& name, int rounds, const Json& training) {
        Json spec = federation_->job_spec(name, rounds);
        spec["training"]["deterministic"] = true;
        spec["training"].update(training);
        const auto id = federation_->coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        const auto state = federation_->coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        EXPECT_TRUE(state.ok() && *state == "completed") << name;
        return federation_->coordinator().rounds(*id)->at("items");
    }
    static std::vector<Json> trainings(const Json& round) {
        std::vector<Json> found;
        for (const Json& task : round.at("tasks"))
            if (task.at("kind") == "train") found.push_back(task);
        return found;
    }
    static Json training_at(const Json& round, const std::string& facility) {
        for (const Json& task : trainings(round))
            if (task.at("facility") == facility) return task;
        return {};
    }
    void put_fault(const std::string& facility, const std::string& fault) const {
        ASSERT_TRUE(write_file_atomic(federation_->path("site-" + facility) / "work" / fault, "").ok());
    }

    const TemporaryDirectory directory_{"atoll-kept"};
    std::optional<e2e::SmallFederation> federation_;
};

TEST_F(KeptOptimizerJobTest, EachRoundBeginsWithTheOptimizerOfTheOneBefore) {
    const Json keeps = {{"keep_optimizer", true}};
    const Json kept = rounds_of("kept", 3, keeps), again = rounds_of("again", 3, keeps);
    const Json anew = rounds_of("anew", 3, Json::object());
    ASSERT_EQ(kept.size(), 4U);
    EXPECT_EQ(kept[1]["version"], anew[1]["version"]) << "the first round has none to begin with";
    EXPECT_NE(kept[2]["version"], anew[2]["version"]);
    for (std::size_t round = 1; round < kept.size(); ++round) {
        EXPECT_EQ(kept[round]["version"], again[round]["version"]) << round;
        EXPECT_EQ(trainings(kept[round]).size(), 2U);
        for (const Json& task : trainings(kept[round])) {
            const Json& metrics = task.at("metrics");
            EXPECT_EQ(metrics.value("earlier_updates", std::int64_t{0}),
                      static_cast<std::int64_t>(round - 1) * metrics.at("steps").get<std::int64_t>())
                << task;
            EXPECT_FALSE(metrics.contains("optimizer_anew")) << task;
        }
    }
}

TEST_F(KeptOptimizerJobTest, AKilledTrainingIsMadeAgainFromWhatWasKeptAndWhatIsCutShortIsLeftOut) {
    const int steps = 300;  // some are left when the kill comes
    const Json training = {{"keep_optimizer", true}, {"steps", steps}, {"lr", 1e-3}};
    const Json whole = rounds_of("whole", 2, training);
    put_fault("a", "kill");
    const Json killed = rounds_of("killed", 2, training);
    ASSERT_EQ(killed.size(), 3U);
    const Json again = training_at(killed[2], "a");
    EXPECT_EQ(again.at("attempt"), 2) << again;
    EXPECT_EQ(again.at("metrics").at("earlier_updates"), steps);
    for (std::size_t round = 1; round < whole.size(); ++round)
        EXPECT_EQ(killed[round]["version"], whole[round]["version"]) << round;

    put_fault("b", "cut");
    const Json cut = rounds_of("cut", 2, training);
    const Json anew = training_at(cut[2], "b");
    EXPECT_EQ(anew.at("attempt"), 1) << anew;
    EXPECT_EQ(anew.at("metrics").at("optimizer_anew"), true);
    EXPECT_FALSE(training_at(cut[2], "a").at("metrics").contains("optimizer_anew"));
    EXPECT_EQ(cut[1]["version"], whole[1]["version"]);
    EXPECT_NE(cut[2]["version"], whole[2]["version"]);
}

}  // namespace
}  // namespace atl
