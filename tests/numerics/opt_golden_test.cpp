// OPT's loss, tokens and gradients against PyTorch's transformers, on every backend.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"

namespace atl::numerics {
namespace {

constexpr double kOptTolerance = 1e-5;  // relative: the loss; each gradient's L2

struct OptCase {
    std::string golden;
    std::string backend;
};

void PrintTo(const OptCase& value, std::ostream* out) {
    *out << value.golden << " on " << value.backend;
}

std::vector<OptCase> opt_cases_on(const std::vector<std::string>& backends) {
    std::vector<OptCase> cases;
    for (const std::string& backend : backends) {
        for (const char* golden : {"tied", "projected", "packed"}) cases.push_back({golden, backend});
        if (has_tiles(backend)) cases.push_back({"tiles", backend});
    }
    return cases;
}

class OptGoldenTest : public ::testing::TestWithParam<OptCase> {
  protected:
    Golden golden_{GetParam().golden, "opt"};
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam().backend, 1);
    std::unique_ptr<EngineModel> model_ = golden_.load(*backend_);

    double golden_loss() const { return static_cast<double>(golden_.floats("loss")[0]); }
};

TEST_P(OptGoldenTest, TheLossIsThatOfTransformers) {
    EXPECT_NEAR(model_->evaluate(golden_.rows()) / golden_loss(), 1.0, kOptTolerance);
    EXPECT_NEAR(model_->train(golden_.rows()) / golden_loss(), 1.0, kOptTolerance);
}

TEST_P(OptGoldenTest, EveryParametersGradientIsThatOfTransformers) {
    model_->train(golden_.rows());
    std::size_t parameters = 0;
    for (const auto& unit : model_->model().units) parameters += unit.parameters.size();
    EXPECT_EQ(golden_.names("gradient:").size(), parameters);
    for (const std::string& name : golden_.names("gradient:")) {
        if (name.ends_with("k_proj.bias")) {
            // Zero in exact arithmetic: a bias of all keys shifts every score of a query alike.
            for (const float value : model_->gradient(name)) EXPECT_NEAR(value, 0.0, 1e-7) << name;
        } else {
            EXPECT_LE(golden_.gradient_error(name, model_->gradient(name)), kOptTolerance) << name;
        }
    }
}

TEST_P(OptGoldenTest, RecomputedActivationsAndAccumulationChangeNoGradient) {
    const double loss = model_->train(golden_.rows());
    std::vector<std::vector<float>> kept;
    const auto names = golden_.names("gradient:");
    for (const std::string& name : names) kept.push_back(model_->gradient(name));
    using parallel::ActivationCheckpointing;
    for (const auto what : {ActivationCheckpointing::kFeedForward, ActivationCheckpointing::kAllButAttention,
                            ActivationCheckpointing::kFull}) {
        const auto recomputed = golden_.load(*backend_, {.change = {}, .checkpointing = {what}});
        EXPECT_EQ(recomputed->train(golden_.rows()), loss);
        for (std::size_t i = 0; i < names.size(); ++i)
            EXPECT_TRUE(recomputed->gradient(names[i]) == kept[i]) << static_cast<int>(what) << names[i];
    }
    model_->train(golden_.rows(), 2);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i].ends_with("k_proj.bias")) continue;
        for (float& value : kept[i]) value *= 2;
        EXPECT_LE(relative_l2(model_->gradient(names[i]), kept[i]), kOptTolerance) << names[i];
    }
}

// Controls: what must not pass, to show that the tolerances can tell.
class OptControlTest : public OptGoldenTest {};

TEST_P(OptControlTest, AWrongOffsetOfThePositionsIsFarOff) {
    const std::string positions = "model.decoder.embed_positions.weight";
    std::vector<float> table = model_->weight(positions);
    std::rotate(table.begin(), table.begin() + golden_.config().hidden_size, table.end());
    model_->set_weight(positions, table);
    EXPECT_GT(std::abs(model_->train(golden_.rows()) / golden_loss() - 1.0), 10 * kOptTolerance);
    const std::string name = "model.decoder.layers.0.fc1.weight";
    EXPECT_GT(golden_.gradient_error(name, model_->gradient(name)), 100 * kOptTolerance);
}

TEST_P(OptControlTest, AnotherEpsilonOfTheNormsIsFarOff) {
    const double loss =
        golden_.load(*backend_, {.change = [](auto& config) { config.norm_eps = 1e-2; }})->evaluate(golden_.rows());
    EXPECT_GT(std::abs(loss / golden_loss() - 1.0), 10 * kOptTolerance);
}

std::string opt_name_of(const ::testing::TestParamInfo<OptCase>& instance) {
    return instance.param.golden + "_" + instance.param.backend;
}

INSTANTIATE_TEST_SUITE_P(All, OptGoldenTest, ::testing::ValuesIn(opt_cases_on(kernels::tested_backends())),
                         opt_name_of);
INSTANTIATE_TEST_SUITE_P(All, OptControlTest, ::testing::ValuesIn(opt_cases_on(kernels::cpu_instruction_sets())),
                         opt_name_of);

}  // namespace
}  // namespace atl::numerics
