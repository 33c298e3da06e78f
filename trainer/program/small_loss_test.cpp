// The loss of a few tokens spells out the text: with --loss-tokens-min none is printed. Each row here has 15 targets.

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

class SmallLossTest : public ProgramTest {
  protected:
    static constexpr double kTolerance = 1e-12;  // relative; sums of five losses

    // At a learning rate of 0: the losses are the model's own of each row.
    std::vector<std::string> flags(const std::vector<std::string>& more) const {
        std::vector<std::string> all = {"--global-batch-size", "1", "--lr", "0", "--shuffle", "off"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    void write_rows(std::int32_t rows) const {
        std::vector<std::int32_t> ids;
        for (std::int32_t row = 0; row < rows; ++row)
            for (std::int32_t t = 0; t < 16; ++t) ids.push_back((row * 11 + t) % 90);
        write_data("long.safetensors", 16, {{"input_ids", ids}});
    }
    static double mean(const std::vector<double>& losses, std::size_t begin, std::size_t end) {
        double sum = 0;
        for (std::size_t i = begin; i < end; ++i) sum += losses.at(i);
        return sum / static_cast<double>(end - begin);
    }
};

TEST_F(SmallLossTest, OfSmallStepsOneLossIsToldForSeveral) {
    const auto each = member(train("each", flags({"--steps", "12"})).out, "loss");
    ASSERT_EQ(each.size(), 12U);
    const auto result = train("out", flags({"--steps", "12", "--loss-tokens-min", "64"}));
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 13U) << result.err;
    for (std::size_t step = 1; step <= 12; ++step) {
        const auto& line = lines[step - 1];
        EXPECT_TRUE(line["grad_norm"].is_null()) << line;
        EXPECT_EQ(line["loss"].is_null(), step % 5 != 0) << line;
        EXPECT_EQ(line["loss_tokens"], step % 5 != 0 ? 0 : 75) << line;
    }
    EXPECT_NEAR(lines[4]["loss"].get<double>() / mean(each, 0, 5), 1, kTolerance);
    EXPECT_NEAR(lines[9]["loss"].get<double>() / mean(each, 5, 10), 1, kTolerance);
    EXPECT_NEAR(lines[12]["loss"].get<double>() / mean(each, 0, 10), 1, kTolerance) << "without the last two steps";
    EXPECT_EQ(lines[12]["final_loss"], lines[9]["loss"]);
    EXPECT_EQ(lines[12]["tokens"], 12 * 15);
}

TEST_F(SmallLossTest, ARunOfTooFewTokensTellsNone) {
    const auto lines = lines_of(train("out", flags({"--steps", "4", "--loss-tokens-min", "64"})).out);
    ASSERT_EQ(lines.size(), 5U);
    for (const auto& line : lines) EXPECT_TRUE(line["loss"].is_null()) << line;
    EXPECT_TRUE(lines.back()["final_loss"].is_null());
}

// Else what is told before and after a stop would differ by the loss of the steps between.
TEST_F(SmallLossTest, ARunThatGoesOnTellsTheSame) {
    const auto whole = lines_of(train("whole", flags({"--steps", "6", "--loss-tokens-min", "64"})).out);
    auto stopping = flags({"--steps", "6", "--loss-tokens-min", "64", "--time-limit", kAtOnce});
    const auto first = lines_of(train("out", stopping).out);
    ASSERT_EQ(first.size(), 2U) << "it stopped after one step";
    EXPECT_TRUE(first.back()["loss"].is_null()) << first.back();
    auto resuming = flags({"--steps", "6", "--loss-tokens-min", "64", "--resume"});
    const auto rest = lines_of(train("out", resuming).out);
    ASSERT_EQ(rest.size(), 6U);
    EXPECT_EQ(rest[3]["loss"], whole[4]["loss"]) << "of step 5";
    EXPECT_EQ(rest.back()["loss"], whole.back()["loss"]);
}

TEST_F(SmallLossTest, LargeStepsAreToldAsEver) {
    const auto tell = [&](const std::string& out, const std::string& tokens_min) {
        auto lines =
            lines_of(train(out, {"--steps", "3", "--global-batch-size", "8", "--loss-tokens-min", tokens_min}).out);
        nlohmann::json told;
        for (const auto& line : lines) told.push_back({line["loss"], line.value("grad_norm", 0.0)});
        return told;
    };
    const auto told = tell("out", "64");
    EXPECT_EQ(told, tell("other", "0"));
    EXPECT_EQ(told.size(), 4U);
}

TEST_F(SmallLossTest, AnEvaluationOfTooFewTokensFails) {
    write_rows(100);
    const auto evaluate = [&](const std::string& rows, int ranks = 1) {
        return run({"eval", "--model", path("model"), "--data", path("long.safetensors"), "--val-samples", rows,
                    "--loss-tokens-min", "64"},
                   ranks);
    };
    for (const int ranks : {1, 2}) {
        const auto small = evaluate("4", ranks);
        EXPECT_NE(small.exit_code, 0);
        EXPECT_EQ(small.out.find("perplexity"), std::string::npos) << small.out;
        EXPECT_NE(small.err.find("has 60 target tokens"), std::string::npos) << small.err;
    }
    EXPECT_EQ(evaluate("5").exit_code, 0);
}

TEST_F(SmallLossTest, AnEvaluationLeavesNoFewRowsOut) {
    write_rows(100);
    const auto tokens = [&](const std::string& rows, const std::string& tokens_min) {
        return member(run({"eval", "--model", path("model"), "--data", path("long.safetensors"), "--val-samples", rows,
                           "--loss-tokens-min", tokens_min})
                          .out,
                      "tokens")
            .at(0);
    };
    EXPECT_EQ(tokens("36", "64"), 36 * 15) << "64 are left out";
    EXPECT_EQ(tokens("37", "64"), 100 * 15);
    EXPECT_EQ(tokens("99", "64"), 100 * 15);
    EXPECT_EQ(tokens("99", "0"), 99 * 15) << "where single losses may be told";
}

TEST_F(SmallLossTest, AValidationOfATrainingLeavesNoFewRowsOut) {
    write_rows(100);
    const auto tokens = [&](const std::string& rows) {
        return member(run({"train", "--model", path("model"), "--data", path("long.safetensors"), "--val-data",
                           path("long.safetensors"), "--out", path("of" + rows), "--steps", "1", "--batch-size", "8",
                           "--val-samples", rows, "--loss-tokens-min", "64"})
                          .out,
                      "val_tokens")
            .at(0);
    };
    EXPECT_EQ(tokens("36"), 36 * 15) << "64 are left out";
    EXPECT_EQ(tokens("37"), 100 * 15);
}

}  // namespace
}  // namespace atl::program
