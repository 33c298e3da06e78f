// The loss and the gradients of adapters against peft: make_lora_goldens.py made the numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "tests/numerics/golden.h"
#include "trainer/model/initialize.h"
#include "trainer/model/lora.h"

namespace atl::numerics {
namespace {

constexpr std::int64_t kRows = 4, kLength = 16;

std::vector<float> floats(const safetensors::File& file, const std::string& name) {
    const safetensors::TensorInfo* const tensor = file.header().find(name);
    check(tensor != nullptr, "the golden lacks " + name);
    std::vector<float> values(file.bytes(*tensor).size() / sizeof(float));
    std::memcpy(values.data(), file.bytes(*tensor).data(), file.bytes(*tensor).size());
    return values;
}

// A model's goldens.
struct Case {
    std::string folder, config;
    std::vector<std::string> targets;
    std::size_t gradients;
};
const std::vector<std::string> kAll = {"all-linear"}, kAllAndHead = {"all-linear", "lm_head"};
const std::map<std::string, Case> kCases = {
    {"llama", {"", "training/", kAll, 2 * 2 * 7}},
    {"llama_heads", {"heads/", "lora/heads/", kAllAndHead, 2 * (2 * 7 + 1)}},
    {"opt", {"opt/", "training/opt/", kAll, 2 * (2 * 6 + 2)}},
    {"opt_heads", {"opt/heads/", "lora/opt/heads/", kAllAndHead, 2 * (2 * 6 + 3)}},
};

// An instruction set, and one of the cases.
class LoraGoldenTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
  protected:
    LoraGoldenTest() {
        for (std::int32_t row = 0; row < kRows; ++row) {
            for (std::int32_t t = 0; t < kLength; ++t) {
                ids_.push_back((7 * row + t * (row % 3 + 1) + t * t * row) % 61);
                labels_.push_back(t < row % 5 ? -100 : ids_.back());
            }
        }
    }

    model::ReferenceDriver load(double alpha) const {
        const auto config = model::load_config(std::string(ATOLL_GOLDEN_DIR) + "/" + case_.config).value();
        model::Model model = model::make_model(config);
        check(model::add_adapters(model, {4, alpha, 0, case_.targets}).ok(), "no adapters");
        model::ReferenceDriver resident(std::move(model), *backend_);
        for (const model::FsdpUnit& unit : resident.model().units) {
            for (const model::Parameter& parameter : unit.parameters) {
                const auto weight = resident.weight(parameter.name);
                if (unit.is_adapter) {
                    std::ranges::copy(floats(adapter_, parameter.name), weight.begin());
                } else {
                    model::initialize(parameter, 3, 0, weight);
                }
            }
        }
        return resident;
    }
    model::HostBatch rows() const { return {{kRows, kLength}, ids_, labels_, {}}; }
    double golden_loss() const { return static_cast<double>(floats(golden_, "loss")[0]); }

    const Case& case_ = kCases.at(std::get<1>(GetParam()));
    const std::string directory_ = std::string(ATOLL_GOLDEN_DIR) + "/lora/" + case_.folder;
    const safetensors::File adapter_ =
        safetensors::File::open(directory_ + "adapter/adapter_model.safetensors").value();
    const safetensors::File golden_ = safetensors::File::open(directory_ + "golden.safetensors").value();
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1, std::get<0>(GetParam())).value();
    std::vector<std::int32_t> ids_, labels_;
};

TEST_P(LoraGoldenTest, LossAndGradientsAreThoseOfPeft) {
    model::ReferenceDriver model = load(8);
    EXPECT_NEAR(model.evaluate(rows()) / golden_loss(), 1.0, 1e-5);
    for (const model::Keep keep :
         {model::Keep::kAll, model::Keep::kWithoutFeedForward, model::Keep::kAttention, model::Keep::kInput}) {
        EXPECT_NEAR(model.train(rows(), {.keep = keep}) / golden_loss(), 1.0, 1e-5);
        std::size_t gradients = 0;
        for (const safetensors::TensorInfo& tensor : golden_.header().tensors) {
            if (!tensor.name.starts_with("gradient:")) continue;
            ++gradients;
            EXPECT_LE(relative_l2(model.gradient(tensor.name.substr(9)), floats(golden_, tensor.name)), 1e-5)
                << tensor.name;
        }
        EXPECT_EQ(gradients, case_.gradients);
    }
}

TEST_P(LoraGoldenTest, AccumulatingTwoPassesDoublesTheGradients) {
    model::ReferenceDriver model = load(8);
    model.train(rows());
    model.train(rows(), {.accumulate = true});
    for (const safetensors::TensorInfo& tensor : golden_.header().tensors) {
        if (!tensor.name.starts_with("gradient:")) continue;
        auto twice = floats(golden_, tensor.name);
        for (float& value : twice) value *= 2;
        EXPECT_LE(relative_l2(model.gradient(tensor.name.substr(9)), twice), 1e-5) << tensor.name;
    }
}

// A control: the tolerance can tell.
TEST_P(LoraGoldenTest, AnotherScaleIsFarOff) {
    model::ReferenceDriver model = load(9);
    EXPECT_GT(std::abs(model.evaluate(rows()) / golden_loss() - 1.0), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, LoraGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(kernels::cpu_instruction_sets()),
                                            ::testing::Values("llama", "llama_heads", "opt", "opt_heads")),
                         [](const auto& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

}  // namespace
}  // namespace atl::numerics
