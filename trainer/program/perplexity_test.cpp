// Perplexity against transformers: tests/numerics/make_perplexity_goldens.py made the numbers.

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

constexpr double kPerplexityTolerance = 1e-4;  // relative

class PerplexityTest : public ProgramTest, public testing::WithParamInterface<std::string> {
  protected:
    PerplexityTest() {
        if (GetParam() == "opt") golden_ = "training/opt";
        make_golden_base();
        write_unequal_rows();
        const auto text = read_file(ATOLL_GOLDEN_DIR "/perplexity/perplexity.json");
        EXPECT_TRUE(text.ok());
        expected_ = nlohmann::json::parse(text.ok() ? *text : "{}")[GetParam()];
    }

    // The line of `eval`.
    nlohmann::json evaluate(const std::vector<std::string>& flags, int ranks) const {
        std::vector<std::string> arguments = {"eval", "--model", path("golden"), "--data", path("unequal.safetensors")};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const auto result = run(arguments, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto lines = lines_of(result.out);
        return lines.empty() ? nlohmann::json{{"perplexity", NAN}, {"tokens", 0}} : lines.back();
    }

    nlohmann::json expected_;
};

TEST_P(PerplexityTest, OverRowsOfUnequalLengthItIsThatOfTransformers) {
    const double wanted = expected_["perplexity"].get<double>();
    for (const auto& [ranks, batch] : {std::pair{1, "24"}, std::pair{1, "1"}, std::pair{1, "5"}, std::pair{3, "2"}}) {
        const auto got = evaluate({"--batch-size", batch, "--sharding", "full_shard"}, ranks);
        EXPECT_NEAR(got["perplexity"].get<double>() / wanted, 1, kPerplexityTolerance) << ranks << " ranks, " << batch;
        EXPECT_EQ(got["tokens"], expected_["targets"]) << ranks << " ranks, " << batch;
    }
}

// A control: a program that takes the mean of the rows' means must be far off.
TEST_P(PerplexityTest, TheMeanOfTheRowsMeansIsFarOff) {
    const double got = evaluate({"--batch-size", "1"}, 1)["perplexity"].get<double>();
    EXPECT_GT(std::abs(got / expected_["of_row_means"].get<double>() - 1), 100 * kPerplexityTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, PerplexityTest, testing::Values("llama", "opt"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::program
