// Gradients in bf16 compute: each as near to fp64 as PyTorch's in bf16, which make_bf16_gradient_goldens.py measured.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "shared/base/file.h"
#include "tests/numerics/engine_model.h"
#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/reference/reference_model.h"
#include "trainer/weights/storage.h"

namespace atl::numerics {
namespace {

using reference::Matrix;
using reference::ReferenceModel;
using Errors = std::map<std::string, double>;  // of each parameter's gradient

constexpr double kWorseMax = 1.2;  // times PyTorch's error
// The batches of the script.
constexpr std::uint64_t kBatches = 8;
constexpr std::int64_t kRows = 16, kLength = 32;

struct Case {
    std::string family;
    std::string golden;
};

void PrintTo(const Case& value, std::ostream* out) {
    *out << value.family << " " << value.golden;
}

// Rounded to bf16, to nearest.
std::vector<float> in_bf16(std::vector<float> values) {
    std::vector<std::byte> rounded(2 * values.size());
    check(weights::narrow(weights::DType::kBF16, values, rounded), "a weight is beyond bf16's range");
    check(weights::widen(weights::DType::kBF16, rounded, values), "a weight is not finite");
    return values;
}

class Bf16GradientGoldenTest : public testing::TestWithParam<Case> {
  protected:
    Bf16GradientGoldenTest() {
        for (const std::string& name : golden_.names("weight:")) {
            weights_.emplace(name, in_bf16(golden_.floats("weight:" + name)));
        }
        const std::uint64_t seed = seed_of("batches"),
                            vocabulary = static_cast<std::uint64_t>(golden_.config().vocab_size);
        for (std::uint64_t i = 0; i < kBatches * kRows * kLength; ++i) {
            ids_.push_back(static_cast<std::int32_t>(mixed(seed, i) % vocabulary));
        }
    }

    model::HostBatch batch(std::uint64_t index) const {
        const auto ids = std::span(ids_).subspan(index * kRows * kLength, kRows * kLength);
        return {.shape = {kRows, kLength}, .input_ids = ids, .labels = ids, .segment_ids = {}};
    }

    Errors theirs() const {
        const auto text = read_file(ATOLL_GOLDEN_DIR "/bf16_gradient/errors.json");
        return nlohmann::json::parse(text.value())[GetParam().family][GetParam().golden].get<Errors>();
    }

    // The gradients of each batch, in fp64.
    std::vector<std::map<std::string, Matrix>> reference(const ReferenceModel::Mistakes& mistakes = {}) const {
        std::map<std::string, Matrix> parameters;
        for (const model::FsdpUnit& unit : model::make_model(golden_.config()).units) {
            for (const model::Parameter& parameter : unit.parameters) {
                Matrix value(parameter.shape.size() == 1 ? 1 : parameter.shape[0], parameter.shape.back());
                std::ranges::copy(weights_.at(parameter.name), value.values.begin());
                parameters.emplace(parameter.name, std::move(value));
            }
        }
        ReferenceModel model(golden_.config(), std::move(parameters), 1, mistakes);
        std::vector<std::map<std::string, Matrix>> gradients;
        for (std::uint64_t index = 0; index < kBatches; ++index) {
            model.loss_and_gradients(batch(index));
            gradients.push_back(model.gradients());
        }
        return gradients;
    }

    // Of the trainer in bf16 compute on a backend: the root of the mean square over the batches.
    Errors errors(const std::vector<std::map<std::string, Matrix>>& wanted, kernels::Backend& backend) const {
        constexpr auto kBf16 = tensor::DType::kBF16;
        EngineModel ours(golden_.config(), {.weights = kBf16, .activations = kBf16, .residual = kBf16},
                         {kRows, kLength}, backend);
        for (const auto& [name, weight] : weights_) ours.set_weight(name, weight);
        Errors errors;
        for (std::uint64_t index = 0; index < kBatches; ++index) {
            ours.train(batch(index));
            for (const auto& [name, gradient] : wanted[index]) {
                const std::vector<float> exact(gradient.values.begin(), gradient.values.end());
                const double error = relative_l2(ours.gradient(name), exact);
                errors[name] += error * error / static_cast<double>(kBatches);
            }
        }
        for (auto& [name, error] : errors) error = std::sqrt(error);
        return errors;
    }

    // The worst over all parameters: ours over what it may be.
    double worst(const Errors& ours) const {
        double worst = 0;
        for (const auto& [name, error] : theirs()) worst = worse(worst, ours.at(name) / (kWorseMax * error));
        return worst;
    }

    Golden golden_{GetParam().golden, GetParam().family};
    std::unique_ptr<kernels::Backend> cpu_ = kernels::make_cpu_backend(1).value();
    std::map<std::string, std::vector<float>> weights_;  // rounded to bf16
    std::vector<std::int32_t> ids_;
};

TEST_P(Bf16GradientGoldenTest, EachGradientIsAsNearToFp64AsPyTorchs) {
    const auto wanted = reference();
    for (const std::string& backend : kernels::tested_backends()) {
        const Errors ours = errors(wanted, *kernels::make_tested_backend(backend, 1));
        for (const auto& [name, error] : theirs()) {
            EXPECT_LE(ours.at(name), kWorseMax * error) << name << " " << backend;
        }
    }
}

// Controls: what must not pass, to show that the tolerances can tell. The reference has the fault, which comes on top
// of the roundings of bf16.

TEST_P(Bf16GradientGoldenTest, AttentionProbabilitiesOfFiveBitsAreFarOff) {
    EXPECT_GT(worst(errors(reference({.probability_bits = 5}), *cpu_)), 1);
}

// Of five bits they would not be seen: of a gradient p − y the p of 97 tokens are a small part.
TEST_P(Bf16GradientGoldenTest, LogitsOfTwoBitsAreFarOff) {
    EXPECT_GT(worst(errors(reference({.logit_bits = 2}), *cpu_)), 1);
}

INSTANTIATE_TEST_SUITE_P(All, Bf16GradientGoldenTest,
                         testing::Values(Case{"llama", "mha"}, Case{"llama", "gqa_tied"}, Case{"llama", "llama3_rope"},
                                         Case{"opt", "tied"}, Case{"opt", "projected"}),
                         [](const auto& instance) { return instance.param.family + "_" + instance.param.golden; });

}  // namespace
}  // namespace atl::numerics
