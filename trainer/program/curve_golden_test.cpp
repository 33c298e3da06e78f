// 300 steps of training against the losses of tests/numerics/make_curve_goldens.py.

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/numerics/golden.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

constexpr std::int64_t kLength = 32, kVocabulary = 61, kBatch = 8, kSteps = 300;
// Of fp32, relative, of each loss.
constexpr double kTolerance = 5e-6;
// Of bf16: how far from PyTorch's fp32 it is, over how far PyTorch's bf16 is. Far is the root of the mean square of the
// differences of the losses, over all steps of three models: a mean of signed differences is zero by chance, and one
// model's figure over its last 50 steps varies by a quarter.
constexpr double kWorseMax = 1.2;

// The rows of make_curve_goldens.py.
std::vector<std::int32_t> curve_rows() {
    const std::uint64_t seed = numerics::seed_of("rows");
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i < kSteps * kBatch * kLength; ++i) {
        const std::uint64_t random = numerics::mixed(seed, i);
        const bool follows = i % kLength > 0 && random % 4 > 0;
        const std::uint64_t id = follows ? 5 * static_cast<std::uint64_t>(ids.back()) + 1 : random >> 32;
        ids.push_back(static_cast<std::int32_t>(id % kVocabulary));
    }
    return ids;
}

using Losses = std::vector<double>;

double sum_of_squares(const Losses& losses, const Losses& exact) {
    double sum = 0;
    for (std::size_t step = 0; step < exact.size(); ++step) sum += std::pow(losses.at(step) - exact[step], 2);
    return sum;
}

class CurveGoldenTest : public ProgramTest {
  protected:
    CurveGoldenTest() {
        const auto text = read_file(ATOLL_GOLDEN_DIR "/curve/curves.json");
        EXPECT_TRUE(text.ok());
        golden_ = nlohmann::json::parse(text.ok() ? *text : "{}");
        write_data("curve.safetensors", kLength, {{"input_ids", curve_rows()}});
    }

    std::vector<std::string> seeds() const {
        std::vector<std::string> seeds;
        for (const auto& [seed, curves] : golden_["curves"].items()) seeds.push_back(seed);
        return seeds;
    }
    Losses golden(const std::string& seed, const char* format) const {
        return golden_["curves"][seed][format].get<Losses>();
    }

    Losses losses_of(const std::string& seed, const std::vector<std::string>& flags) const {
        const std::string config = ATOLL_GOLDEN_DIR "/curve/config.json";
        EXPECT_EQ(run({"init", "--config", config, "--out", path("model"), "--seed", seed, "--overwrite"}).exit_code,
                  0);
        std::vector<std::string> arguments = {
            "train", "--model",   path("model"), "--data",    path("curve.safetensors"),
            "--out", path("out"), "--overwrite", "--threads", "1"};
        arguments.insert(arguments.end(),
                         {"--steps", std::to_string(kSteps), "--global-batch-size", std::to_string(kBatch), "--shuffle",
                          "off", "--lr", "3e-3", "--schedule", "cosine", "--warmup-steps", "20", "--beta2", "0.999",
                          "--weight-decay", "0.1", "--max-grad-norm", "1"});
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const auto result = run(arguments);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "loss");
    }

    // Over these models: how far the losses with those flags are, over how far PyTorch's in bf16 are.
    double compare(const std::vector<std::string>& seeds, const std::vector<std::string>& flags) const {
        double ours = 0, theirs = 0;
        for (const std::string& seed : seeds) {
            const Losses exact = golden(seed, "fp32");
            ours += sum_of_squares(losses_of(seed, flags), exact);
            theirs += sum_of_squares(golden(seed, "bf16"), exact);
        }
        return std::sqrt(ours / theirs);
    }

    nlohmann::json golden_;
};

TEST_F(CurveGoldenTest, ThreeHundredStepsInFp32AreThoseOfPyTorch) {
    for (const std::string& seed : seeds()) {
        const Losses ours = losses_of(seed, {}), exact = golden(seed, "fp32");
        ASSERT_EQ(ours.size(), exact.size());
        double furthest = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            furthest = numerics::worse(furthest, std::abs(ours[i] / exact[i] - 1));
        }
        EXPECT_LE(furthest, kTolerance) << "seed " << seed;
    }
}

TEST_F(CurveGoldenTest, ThreeHundredStepsInBf16AreAsNearToFp32AsThoseOfPyTorch) {
    const double worse = compare(seeds(), {"--precision", "bf16", "--compute-dtype", "bf16"});
    EXPECT_LE(worse, kWorseMax);
    EXPECT_GT(worse, 0.5) << "these are not the losses of bf16";
}

// Controls: what must not pass, to show that the tolerances can tell.

TEST_F(CurveGoldenTest, BrokenUpdatesAreFarOff) {
    const Losses exact = golden("3", "fp32");
    const double theirs = std::sqrt(sum_of_squares(golden("3", "bf16"), exact) / static_cast<double>(exact.size()));
    for (const auto& [name, distance] : golden_["controls"].items()) {
        EXPECT_GT(distance.get<double>(), 3 * kWorseMax * theirs) << name;
    }
    EXPECT_GT(compare({"3"}, {"--precision", "bf16", "--compute-dtype", "bf16", "--masters", "none"}), 2 * kWorseMax);
}

}  // namespace
}  // namespace atl::program
