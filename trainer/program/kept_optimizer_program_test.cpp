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
    Flags from(const std::string& out, const std::string& name) const {
        return from(out) + Flags{"--optimizer-if-named", name};
    }
    fs::path state_file(const std::string& out, const std::string& begin) const {
        for (const auto& entry : fs::directory_iterator(path(out + ".state")))
            if (entry.path().filename().string().starts_with(begin)) return entry.path();
        return {};
    }
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

    const fs::path part = state_file("first", "optimizer-");
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

// For who would rather train on than be refused.
TEST_F(KeptOptimizerTest, WhatDoesNotFitIsLeftOutWithAWarningWhereTheRunAsksForIt) {
    ASSERT_EQ(train("first", keeping_ + Flags{"--optimizer-name", "round 1"}, 2).exit_code, 0);
    const auto weights_of = [&](const std::string& model, const Flags& flags) {
        EXPECT_EQ(go_on(model, "alone", three_ + flags).exit_code, 0);
        return weights("alone");
    };
    const std::string with = weights_of("model", from("first")), anew = weights_of("model", {});
    ASSERT_EQ(with == anew, false);
    const auto expect_anew = [&](const std::string& why, const std::string& expected, const Flags& flags = {},
                                 const std::string& model = "model", int ranks = 1,
                                 const std::string& name = "round 1") {
        SCOPED_TRACE(why);
        const auto result = go_on(model, "second", three_ + from("first", name) + flags, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_NE(result.err.find("the optimizer starts with moments of zero: "), std::string::npos) << result.err;
        EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
        EXPECT_EQ(result.err.find("without --optimizer-from"), std::string::npos) << result.err;
        EXPECT_NE(result.out.find("\"optimizer_anew\":true"), std::string::npos) << result.out;
        EXPECT_EQ(weights("second") == expected, true);
    };
    const auto expect_kept = [&] {
        const auto fits = go_on("model", "second", three_ + from("first", "round 1"));
        EXPECT_EQ(fits.exit_code, 0) << fits.err;
        EXPECT_EQ(fits.out.find("optimizer_anew"), std::string::npos) << fits.out;
        EXPECT_EQ(weights("second") == with, true);
    };
    expect_kept();
    const Flags muon = {"--optimizer", "muon"}, bf16 = {"--moments-dtype", "bf16"};
    expect_anew(R"(had --optimizer "adamw" (now "muon"))", weights_of("model", muon), muon);
    expect_anew(R"(had --moments-dtype "fp32" (now "bf16"))", weights_of("model", bf16), bf16);
    make_wide_model("wide");
    expect_anew("model.", weights_of("wide", {}), {}, "wide");
    expect_anew("are those of 'round 1', not of 'round 2'", anew, {}, "model", 1, "round 2");

    for (const char* begin : {"optimizer.safetensors", "optimizer-"}) {
        const fs::path file = state_file("first", begin);
        const std::string bytes = read_file(file).value(), name = file.filename();
        std::string flipped = bytes;
        flipped[flipped.size() / 2] ^= 1;
        ASSERT_TRUE(write_file_atomic(file, flipped).ok());
        expect_anew(name, anew, {}, "model", 2);
        ASSERT_TRUE(write_file_atomic(file, bytes.substr(0, bytes.size() / 2)).ok());
        expect_anew(name, anew);
        ASSERT_TRUE(write_file_atomic(file, "").ok());
        expect_anew(name, anew);
        fs::remove(file);
        expect_anew(name, anew);
        ASSERT_TRUE(write_file_atomic(file, bytes).ok());
    }
    expect_kept();
    const auto itself = go_on("model", "first", three_ + from("first", "round 1"));
    EXPECT_EQ(itself.exit_code, 2) << itself.err;
    EXPECT_NE(itself.err.find("is the same as --out"), std::string::npos) << itself.err;
}

TEST_F(KeptOptimizerTest, AStoppedRunNeedsTheMomentsThatItBeganWithNoMore) {
    ASSERT_EQ(train("first", keeping_ + Flags{"--optimizer-name", "round 1"}).exit_code, 0);
    const Flags flags = three_ + from("first", "round 1");
    ASSERT_EQ(go_on("first", "whole", flags).exit_code, 0);
    ASSERT_EQ(go_on("first", "second", flags + Flags{"--time-limit", kAtOnce}).exit_code, 0);
    fs::remove_all(path("first.state"));
    const auto rest = go_on("first", "second", flags + Flags{"--resume"});
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_EQ(weights("second") == weights("whole"), true);
    EXPECT_EQ(rest.out.find("optimizer_anew"), std::string::npos) << rest.out;
}

TEST_F(KeptOptimizerTest, ANewRunGivesUpWhatThePlaceHeld) {
    ASSERT_EQ(train("out", keeping_, 2).exit_code, 0);
    ASSERT_EQ(train("out", three_).exit_code, 0);
    for (const auto& entry : fs::directory_iterator(path("out.state")))
        EXPECT_EQ(entry.path().filename(), "finished.json");
}

}  // namespace
}  // namespace atl::program
