// OPT's loss, tokens and gradients against PyTorch's transformers, for every instruction set of this machine.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "tests/numerics/golden.h"

namespace atl::numerics {
namespace {

constexpr double kOptTolerance = 1e-5;  // relative: the loss; each gradient's L2

struct OptCase {
    std::string golden;
    std::string instruction_set;
};

void PrintTo(const OptCase& value, std::ostream* out) {
    *out << value.golden << " on " << value.instruction_set;
}

std::vector<OptCase> opt_cases() {
    std::vector<OptCase> cases;
    for (const char* golden : {"tied", "projected", "packed", "tiles"}) {
        for (const auto& set : kernels::cpu_instruction_sets()) cases.push_back({golden, set});
    }
    return cases;
}

class OptGoldenTest : public ::testing::TestWithParam<OptCase> {
  protected:
    Golden golden_{GetParam().golden, "opt"};
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1, GetParam().instruction_set).value();
    model::ReferenceDriver model_ = golden_.load(*backend_);

    double golden_loss() const { return static_cast<double>(golden_.floats("loss")[0]); }
};

TEST_P(OptGoldenTest, TheLossIsThatOfTransformers) {
    EXPECT_NEAR(model_.evaluate(golden_.rows()) / golden_loss(), 1.0, kOptTolerance);
    EXPECT_NEAR(model_.train(golden_.rows()) / golden_loss(), 1.0, kOptTolerance);
}

TEST_P(OptGoldenTest, EveryParametersGradientIsThatOfTransformers) {
    model_.train(golden_.rows());
    std::size_t parameters = 0;
    for (const auto& unit : model_.model().units) parameters += unit.parameters.size();
    EXPECT_EQ(golden_.names("gradient:").size(), parameters);
    for (const std::string& name : golden_.names("gradient:")) {
        if (name.ends_with("k_proj.bias")) {
            // Zero in exact arithmetic: a bias of all keys shifts every score of a query alike.
            for (const float value : model_.gradient(name)) EXPECT_NEAR(value, 0.0, 1e-7) << name;
        } else {
            EXPECT_LE(golden_.gradient_error(name, model_.gradient(name)), kOptTolerance) << name;
        }
    }
}

TEST_P(OptGoldenTest, RecomputedActivationsAndAccumulationChangeNoGradient) {
    const double loss = model_.train(golden_.rows());
    std::vector<std::vector<float>> kept;
    const auto names = golden_.names("gradient:");
    for (const std::string& name : names) kept.emplace_back(model_.gradient(name).begin(), model_.gradient(name).end());
    for (const model::Keep keep : {model::Keep::kWithoutFeedForward, model::Keep::kAttention, model::Keep::kInput}) {
        EXPECT_EQ(model_.train(golden_.rows(), {.keep = keep}), loss);
        for (std::size_t i = 0; i < names.size(); ++i)
            EXPECT_TRUE(std::ranges::equal(model_.gradient(names[i]), kept[i])) << static_cast<int>(keep);
    }
    model_.train(golden_.rows(), {.accumulate = true});
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i].ends_with("k_proj.bias")) continue;
        for (float& value : kept[i]) value *= 2;
        EXPECT_LE(relative_l2(model_.gradient(names[i]), kept[i]), kOptTolerance) << names[i];
    }
}

// Controls: what must not pass, to show that the tolerances can tell.

TEST_P(OptGoldenTest, AWrongOffsetOfThePositionsIsFarOff) {
    const auto table = model_.weight("model.decoder.embed_positions.weight");
    std::rotate(table.begin(), table.begin() + golden_.config().hidden_size, table.end());
    EXPECT_GT(std::abs(model_.train(golden_.rows()) / golden_loss() - 1.0), 10 * kOptTolerance);
    const std::string name = "model.decoder.layers.0.fc1.weight";
    EXPECT_GT(golden_.gradient_error(name, model_.gradient(name)), 100 * kOptTolerance);
}

TEST_P(OptGoldenTest, AnotherEpsilonOfTheNormsIsFarOff) {
    const double loss =
        golden_.load(*backend_, [](model::ModelConfig& config) { config.norm_eps = 1e-2; }).evaluate(golden_.rows());
    EXPECT_GT(std::abs(loss / golden_loss() - 1.0), 10 * kOptTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, OptGoldenTest, ::testing::ValuesIn(opt_cases()), [](const auto& instance) {
    return instance.param.golden + "_" + instance.param.instruction_set;
});

class OptGenerationTest : public ::testing::TestWithParam<std::string> {
  protected:
    Golden golden_{GetParam(), "opt"};
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(2).value();
    model::ReferenceDriver model_ = golden_.load(*backend_);
};

TEST_P(OptGenerationTest, GreedyTokensAreThoseOfTransformers) {
    const auto expected = golden_.integers("tokens");
    ASSERT_FALSE(expected.empty());
    std::vector<std::int32_t> tokens;
    const model::GenerateOptions options{.tokens_max = static_cast<std::int64_t>(expected.size())};
    const auto status = model::generate(model_.model(), *backend_, model_, golden_.rows().input_ids.first(5), options,
                                        [&](std::int32_t token) { return tokens.push_back(token), true; });
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(All, OptGenerationTest, ::testing::Values("tied", "projected"));

}  // namespace
}  // namespace atl::numerics
