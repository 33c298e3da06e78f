// A run that begins with another's moments.
#include <algorithm>
#include <filesystem>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

using Flags = std::vector<std::string>;

Flags operator+(Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

class KeptOptimizerTest : public ProgramTest {
  protected:
    // Three steps are an epoch, so that a second run sees the rows that a longer one would see next.
    const Flags three_ = {"--steps",
                          "3",
                          "--global-batch-size",
                          "4",
                          "--train-samples",
                          "12",
                          "--shuffle",
                          "off",
                          "--lr",
                          "0.01",
                          "--deterministic",
                          "--save-dtype",
                          "fp32"};
    const Flags keeping_ = three_ + Flags{"--keep-optimizer"};

    CommandResult go_on(const std::string& model, const std::string& out, const Flags& flags, int ranks = 1) const {
        Flags arguments = Flags{"train", "--model", path(model), "--data", path("data.safetensors"),
                                "--out", path(out), "--threads", "1"};
        if (std::ranges::find(flags, "--resume") == flags.end()) arguments.emplace_back("--overwrite");
        return run(arguments + flags, ranks);
    }
    Flags from(const std::string& out) const { return {"--optimizer-from", path(out)}; }
    void expect_refused(const CommandResult& result, const std::string& words) const {
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
        EXPECT_FALSE(fs::exists(path("second/model.safetensors")));
    }
};

TEST_F(KeptOptimizerTest, TwoRunsAreOneOfTwiceTheStepsBitForBit) {
    for (const Flags& optimizer :
         {Flags{"--optimizer", "adamw"}, Flags{"--optimizer", "muon"}, Flags{"--optimizer", "sgd", "--momentum", "0.9"},
          Flags{"--optimizer", "adamw", "--offload-optimizer", "cpu"}}) {
        SCOPED_TRACE(optimizer.at(1));
        Flags six = three_ + optimizer;
        six[1] = "6";
        ASSERT_EQ(train("whole", six).exit_code, 0);
        ASSERT_EQ(train("first", keeping_ + optimizer + Flags{"--sharding", "full_shard"}, 4).exit_code, 0);
        EXPECT_TRUE(fs::exists(path("first.state/optimizer.safetensors")));
        EXPECT_FALSE(fs::exists(path("first.state/state.safetensors")));
        const auto second = go_on("first", "second", keeping_ + optimizer + from("first"), 2);
        ASSERT_EQ(second.exit_code, 0) << second.err;
        EXPECT_EQ(weights("second") == weights("whole"), true);
        ASSERT_EQ(go_on("first", "anew", three_ + optimizer).exit_code, 0);
        EXPECT_EQ(weights("anew") == weights("whole"), false) << "moments of zeros";
    }
}

TEST_F(KeptOptimizerTest, AStoppedRunGoesOnBitForBitAndKeepsTheSame) {
    ASSERT_EQ(train("first", keeping_).exit_code, 0);
    ASSERT_EQ(go_on("first", "whole", keeping_ + from("first")).exit_code, 0);
    ASSERT_EQ(go_on("first", "second", keeping_ + from("first") + Flags{"--time-limit", kAtOnce}).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("second.state/optimizer.safetensors")));
    const auto other = go_on("first", "second", keeping_ + from("whole") + Flags{"--resume"});
    expect_refused(other, "--optimizer-from");
    const auto rest = go_on("first", "second", keeping_ + from("first") + Flags{"--resume"});
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_EQ(weights("second") == weights("whole"), true);
    ASSERT_EQ(go_on("whole", "third", three_ + from("whole")).exit_code, 0);
    const std::string third = weights("third");
    ASSERT_EQ(go_on("whole", "third", three_ + from("second")).exit_code, 0);
    EXPECT_EQ(weights("third") == third, true) << "all the updates before were counted";
}

TEST_F(KeptOptimizerTest, WhatIsOfAnotherModelOrOptimizerIsRefused) {
    ASSERT_EQ(train("first", keeping_, 2).exit_code, 0);
    const auto refused = [&](const Flags& flags, const std::string& words) {
        SCOPED_TRACE(words);
        expect_refused(go_on("model", "second", three_ + flags), words);
    };
    refused(from("model"), "there is no " + path("model.state/optimizer.safetensors"));
    refused(from("second"), "there is no ");
    refused(from("first") + Flags{"--optimizer", "muon"}, R"(had --optimizer "adamw" (now "muon"))");
    refused(from("first") + Flags{"--moments-dtype", "bf16"}, R"(had --moments-dtype "fp32" (now "bf16"))");
    refused(from("first") + Flags{"--lora-rank", "2"}, "--lora-rank");
    refused(Flags{"--keep-optimizer", "--optimizer", "sgd"}, "sgd without --momentum has no moments to keep");
    make_wide_model("wide");
    expect_refused(go_on("wide", "second", three_ + from("first")), "model.");
    expect_refused(go_on("model", "first", three_ + from("first")), "is the same as --out");

    const fs::path part = [&] {
        for (const auto& entry : fs::directory_iterator(path("first.state")))
            if (entry.path().filename().string().starts_with("optimizer-")) return entry.path();
        return fs::path();
    }();
    const std::string bytes = read_file(part).value();
    std::string changed = bytes;
    changed[changed.size() / 2] ^= 1;
    ASSERT_TRUE(write_file_atomic(part, changed).ok());
    refused(from("first"), "is damaged; start without --optimizer-from");
    fs::remove(part);
    refused(from("first"), "put it back, or start without --optimizer-from");
    ASSERT_TRUE(write_file_atomic(part, bytes).ok());
    EXPECT_EQ(go_on("model", "second", three_ + from("first")).exit_code, 0);
}

TEST_F(KeptOptimizerTest, ANewRunGivesUpWhatThePlaceHeld) {
    ASSERT_EQ(train("out", keeping_, 2).exit_code, 0);
    ASSERT_EQ(train("out", three_).exit_code, 0);
    for (const auto& entry : fs::directory_iterator(path("out.state")))
        EXPECT_EQ(entry.path().filename(), "finished.json");
}

}  // namespace
}  // namespace atl::program
