// Whole models: the fp64 reference's gradients against finite differences of its loss, and the trainer's fp32 gradients
// against those. So what the trainer computes hangs on no other program.

#include "trainer/reference/reference_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <random>

#include "tests/numerics/golden.h"
#include "trainer/model/initialize.h"
#include "trainer/model/lora.h"

namespace atl::numerics {
namespace {

using reference::Matrix;
using reference::ReferenceModel;

constexpr double kDifferenceTolerance = 1e-7;  // relative, of a slope
constexpr double kGradientTolerance = 1e-5;    // relative L2, each tensor
constexpr double kLoraScale = 2;

struct Case {
    std::string family;
    std::string golden;
    bool adapted = false;  // frozen, with adapters of rank 4 on all linears
};

void PrintTo(const Case& value, std::ostream* out) {
    *out << value.family << " " << value.golden << (value.adapted ? " adapted" : "");
}

class ReferenceModelTest : public testing::TestWithParam<Case> {
  protected:
    std::unique_ptr<EngineModel> load() {
        if (!GetParam().adapted) return golden_.load(*backend_);
        model::Model model = model::make_model(golden_.config());
        check(model::add_adapters(model, {4, 4 * kLoraScale, 0, {"all-linear"}}).ok(), "no adapters");
        auto adapted = std::make_unique<EngineModel>(std::move(model), golden_.rows().shape, *backend_);
        for (const auto& [name, values] : golden_.weights()) adapted->set_weight(name, values);
        for (const model::FsdpUnit& unit : adapted->model().units) {
            if (!unit.is_adapter) continue;
            for (model::Parameter parameter : unit.parameters) {
                parameter.init = model::Init::kUniform;  // also B, which begins as zeros: not from a flat place
                parameter.init_deviation = 0.2F;
                std::vector<float> values(static_cast<std::size_t>(parameter.element_count()));
                model::initialize(parameter, 1, 0, values);
                adapted->set_weight(parameter.name, values);
            }
        }
        return adapted;
    }

    ReferenceModel reference(const ReferenceModel::Mistakes& mistakes = {}) {
        std::map<std::string, Matrix> parameters;
        for (const model::FsdpUnit& unit : model_->model().units) {
            for (const model::Parameter& parameter : unit.parameters) {
                const bool vector = parameter.shape.size() == 1;
                Matrix value(vector ? 1 : parameter.shape[0], vector ? parameter.shape[0] : parameter.shape[1]);
                std::ranges::copy(model_->weight(parameter.name), value.values.begin());
                parameters.emplace(parameter.name, std::move(value));
            }
        }
        return ReferenceModel(golden_.config(), std::move(parameters), kLoraScale, mistakes);
    }

    // The parameters that train.
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const model::FsdpUnit& unit : model_->model().units) {
            for (const model::Parameter& parameter : unit.parameters) {
                if (!unit.frozen) names.push_back(parameter.name);
            }
        }
        return names;
    }
    // Zero in exact arithmetic: a bias of all keys that are not rotated shifts every score of a query alike.
    static bool is_flat(const std::string& name) { return GetParam().family == "opt" && name.ends_with("k_proj.bias"); }

    // How far the trainer's gradients are from the reference's, at worst over the tensors.
    double worst_gradient(ReferenceModel& reference) {
        model_->train(golden_.rows());
        reference.loss_and_gradients(golden_.rows());
        double worst = 0;
        for (const std::string& name : names()) {
            if (is_flat(name)) continue;
            const auto& wanted = reference.gradients().at(name).values;
            const std::vector<float> rounded(wanted.begin(), wanted.end());
            worst = worse(worst, relative_l2(model_->gradient(name), rounded));
        }
        return worst;
    }

    // How far a parameter's gradient is from the differences of the loss along a random direction and the gradient's
    // own, as a part of the slope.
    double difference(ReferenceModel& reference, const std::string& name) const {
        const Matrix gradient = reference.gradients().at(name);
        const Matrix weights = reference.parameter(name);
        std::mt19937_64 random(11);
        std::normal_distribution<double> normal;
        std::vector<double> direction(weights.values.size());
        double size = 0, slope = 0;
        for (const double g : gradient.values) size += g * g;
        for (std::size_t i = 0; i < direction.size(); ++i) {
            const double noise = normal(random) / std::sqrt(static_cast<double>(direction.size()));
            direction[i] = noise + (size > 1e-20 ? gradient.values[i] / std::sqrt(size) : 0);
            slope += direction[i] * gradient.values[i];
        }
        const auto at = [&](double distance) {
            Matrix& moved = reference.parameter(name);
            for (std::size_t i = 0; i < direction.size(); ++i) {
                moved.values[i] = weights.values[i] + distance * direction[i];
            }
            const double loss = reference.loss_nearby(golden_.rows());
            moved = weights;
            return loss;
        };
        constexpr double kStep = 3e-4;  // the error is of its fourth power
        const double seen = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
        return std::abs(seen - slope) / std::max(std::abs(slope), 1e-4);
    }

    Golden golden_{GetParam().golden, GetParam().family};
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1).value();
    std::unique_ptr<EngineModel> model_ = load();
};

TEST_P(ReferenceModelTest, ItsGradientsAreTheDifferencesOfItsLoss) {
    ReferenceModel reference = this->reference();
    reference.loss_and_gradients(golden_.rows());
    for (const std::string& name : names()) EXPECT_LE(difference(reference, name), kDifferenceTolerance) << name;
}

TEST_P(ReferenceModelTest, TheTrainersLossAndGradientsAreIts) {
    ReferenceModel reference = this->reference();
    EXPECT_NEAR(model_->train(golden_.rows()) / reference.loss_and_gradients(golden_.rows()), 1, 1e-6);
    EXPECT_LE(worst_gradient(reference), kGradientTolerance);
    for (const std::string& name : names()) {
        if (!is_flat(name)) continue;
        for (const float value : model_->gradient(name)) EXPECT_NEAR(value, 0, 1e-7) << name;
    }
}

// A tensor of which nothing is a number is no good one among many.
TEST(WorseTest, WhatIsNoNumberIsTheWorst) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(worse(1, nan)) && std::isnan(worse(nan, 1)));
    EXPECT_EQ(worse(1, 2), 2);
}

// Controls: what must not pass, to show that the tolerances can tell.

TEST_P(ReferenceModelTest, ScoresThatAreNotScaledAreFarOff) {
    ReferenceModel wrong = reference({.unscaled_scores = true});
    EXPECT_GT(worst_gradient(wrong), 1000 * kGradientTolerance);
}

TEST_P(ReferenceModelTest, LabelsShiftedTwiceAreFarOff) {
    ReferenceModel wrong = reference({.labels_shifted_twice = true});
    EXPECT_GT(worst_gradient(wrong), 1000 * kGradientTolerance);
}

// For faults in what OPT lacks: it learns its positions, and its norms subtract a mean.
class LlamaReferenceModelTest : public ReferenceModelTest {};

TEST_P(LlamaReferenceModelTest, AnInterleavedRotationIsFarOff) {
    ReferenceModel wrong = reference({.interleaved_rotation = true});
    EXPECT_GT(worst_gradient(wrong), 1000 * kGradientTolerance);
}

TEST_P(LlamaReferenceModelTest, ADerivativeThatLacksATermIsFarOff) {
    ReferenceModel wrong = reference({.broken_norm_derivative = true});
    wrong.loss_and_gradients(golden_.rows());
    double worst = 0;
    for (const std::string& name : names()) worst = worse(worst, difference(wrong, name));
    EXPECT_GT(worst, 1000 * kDifferenceTolerance);
    EXPECT_GT(worst_gradient(wrong), 1000 * kGradientTolerance);
}

const auto llama_cases =
    testing::Values(Case{"llama", "mha"}, Case{"llama", "gqa_tied"}, Case{"llama", "llama3_rope"},
                    Case{"llama", "dynamic_rope"}, Case{"llama", "packed"}, Case{"llama", "gqa_tied", true});
// For faults in what Qwen3 alone has.
class Qwen3ReferenceModelTest : public ReferenceModelTest {};

TEST_P(Qwen3ReferenceModelTest, HeadsWithoutTheirNormsAreFarOff) {
    ReferenceModel wrong = reference({.plain_heads = true});
    EXPECT_GT(worst_gradient(wrong), 1000 * kGradientTolerance);
}

const auto family_cases = testing::Values(
    Case{"families", "mistral"}, Case{"families", "mistral_window"}, Case{"families", "qwen2"},
    Case{"families", "qwen2_packed"}, Case{"families", "qwen3"}, Case{"families", "qwen3_biased"},
    Case{"families", "qwen3_packed"}, Case{"families", "yarn"}, Case{"families", "yarn_untruncated"},
    Case{"families", "yarn_factor"}, Case{"families", "qwen2", true}, Case{"families", "qwen3_biased", true});
const auto qwen3_cases =
    testing::Values(Case{"families", "qwen3"}, Case{"families", "qwen3_biased"}, Case{"families", "qwen3_packed"});
const auto opt_cases = testing::Values(Case{"opt", "tied"}, Case{"opt", "projected"}, Case{"opt", "packed"});

std::string name_of(const testing::TestParamInfo<Case>& instance) {
    const Case& value = instance.param;
    return value.family + "_" + value.golden + (value.adapted ? "_adapted" : "");
}

INSTANTIATE_TEST_SUITE_P(Llama, ReferenceModelTest, llama_cases, name_of);
INSTANTIATE_TEST_SUITE_P(Opt, ReferenceModelTest, opt_cases, name_of);
INSTANTIATE_TEST_SUITE_P(Llama, LlamaReferenceModelTest, llama_cases, name_of);
INSTANTIATE_TEST_SUITE_P(Families, ReferenceModelTest, family_cases, name_of);
INSTANTIATE_TEST_SUITE_P(Families, LlamaReferenceModelTest, family_cases, name_of);
INSTANTIATE_TEST_SUITE_P(Families, Qwen3ReferenceModelTest, qwen3_cases, name_of);

}  // namespace
}  // namespace atl::numerics
