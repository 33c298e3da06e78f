// The loss and the gradients of adapters against peft, on every backend: make_lora_goldens.py made the numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "shared/base/file.h"
#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"
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

// A backend, and a folder of goldens: an adapter, and what peft makes of it.
class AdapterGoldenTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
  protected:
    explicit AdapterGoldenTest(const std::string& folder)
        : directory_(std::string(ATOLL_GOLDEN_DIR) + "/lora/" + folder) {
        for (std::int32_t row = 0; row < kRows; ++row) {
            for (std::int32_t t = 0; t < kLength; ++t) {
                ids_.push_back((7 * row + t * (row % 3 + 1) + t * t * row) % 61);
                labels_.push_back(t < row % 5 ? -100 : ids_.back());
            }
        }
    }

    // `config`: the folder of the model's, below that of all goldens.
    std::unique_ptr<EngineModel> load(const std::string& config, const model::LoraOptions& options,
                                      const parallel::Checkpointing& checkpointing = {}) const {
        model::Model model =
            model::make_model(model_config::load_config(std::string(ATOLL_GOLDEN_DIR) + "/" + config).value());
        check(model::add_adapters(model, options).ok(), "no adapters");
        const model::BatchShape shape{kRows, kLength};
        auto loaded = std::make_unique<EngineModel>(std::move(model), shape, *backend_, checkpointing);
        for (const model::FsdpUnit& unit : loaded->model().units) {
            for (const model::Parameter& parameter : unit.parameters) {
                std::vector<float> weight(static_cast<std::size_t>(parameter.element_count()));
                if (unit.is_adapter) {
                    weight = floats(adapter_, parameter.name);
                } else {
                    model::initialize(parameter, 3, 0, weight);
                }
                loaded->set_weight(parameter.name, weight);
            }
        }
        return loaded;
    }
    model::HostBatch rows() const { return {{kRows, kLength}, ids_, labels_, {}}; }
    double golden_loss() const { return static_cast<double>(floats(golden_, "loss")[0]); }
    // How many there are.
    std::size_t expect_golden_gradients(EngineModel& model) const {
        std::size_t gradients = 0;
        for (const safetensors::TensorInfo& tensor : golden_.header().tensors) {
            if (!tensor.name.starts_with("gradient:")) continue;
            ++gradients;
            EXPECT_LE(relative_l2(model.gradient(tensor.name.substr(9)), floats(golden_, tensor.name)), 1e-5)
                << tensor.name;
        }
        return gradients;
    }

    const std::string directory_;
    const safetensors::File adapter_ =
        safetensors::File::open(directory_ + "adapter/adapter_model.safetensors").value();
    const safetensors::File golden_ = safetensors::File::open(directory_ + "golden.safetensors").value();
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(std::get<0>(GetParam()), 1);
    std::vector<std::int32_t> ids_, labels_;
};

// An adapter of one of the cases.
class LoraGoldenTest : public AdapterGoldenTest {
  protected:
    LoraGoldenTest() : AdapterGoldenTest(kCases.at(std::get<1>(GetParam())).folder) {}

    std::unique_ptr<EngineModel> load(double alpha, const parallel::Checkpointing& checkpointing = {}) const {
        return AdapterGoldenTest::load(case_.config, {4, alpha, 0, case_.targets}, checkpointing);
    }

    const Case& case_ = kCases.at(std::get<1>(GetParam()));
};

TEST_P(LoraGoldenTest, LossAndGradientsAreThoseOfPeft) {
    using parallel::ActivationCheckpointing;
    for (const auto what : {ActivationCheckpointing::kNone, ActivationCheckpointing::kFeedForward,
                            ActivationCheckpointing::kAllButAttention, ActivationCheckpointing::kFull}) {
        const auto model = load(8, {what});
        EXPECT_NEAR(model->evaluate(rows()) / golden_loss(), 1.0, 1e-5);
        EXPECT_NEAR(model->train(rows()) / golden_loss(), 1.0, 1e-5);
        EXPECT_EQ(expect_golden_gradients(*model), case_.gradients);
    }
}

TEST_P(LoraGoldenTest, AccumulatingTwoPassesDoublesTheGradients) {
    const auto model = load(8);
    model->train(rows(), 2);
    for (const safetensors::TensorInfo& tensor : golden_.header().tensors) {
        if (!tensor.name.starts_with("gradient:")) continue;
        auto twice = floats(golden_, tensor.name);
        for (float& value : twice) value *= 2;
        EXPECT_LE(relative_l2(model->gradient(tensor.name.substr(9)), twice), 1e-5) << tensor.name;
    }
}

// A control: the tolerance can tell.
TEST_P(LoraGoldenTest, AnotherScaleIsFarOff) {
    const auto model = load(9);
    EXPECT_GT(std::abs(model->evaluate(rows()) / golden_loss() - 1.0), 1e-4);
}

// An adapter that only peft's own keys describe.
class PeftGoldenTest : public AdapterGoldenTest {
  protected:
    PeftGoldenTest() : AdapterGoldenTest(std::get<1>(GetParam()) + "/") {}

    model::LoraOptions options() const {
        const auto text = read_file(directory_ + "adapter/adapter_config.json");
        return adapter::parse_config(json::parse(text.value()).value()).value();
    }
    std::unique_ptr<EngineModel> load(const model::LoraOptions& options) const {
        auto loaded = AdapterGoldenTest::load("training/", options);
        std::size_t adapters = 0;
        for (const model::FsdpUnit& unit : loaded->model().units)
            if (unit.is_adapter) adapters += unit.parameters.size();
        EXPECT_EQ(adapters, adapter_.header().tensors.size());
        return loaded;
    }
    // The largest distance from the golden logits of all rows.
    double worst_logit(EngineModel& model) const {
        constexpr std::size_t kVocabulary = 61;
        const auto wanted = floats(golden_, "logits");
        std::vector<float> got(kVocabulary);
        double worst = 0;
        for (std::size_t row = 0; row < kRows; ++row) {
            auto generation = model::Generation::start(model.model(), *backend_, model, kLength, kLength).value();
            for (std::size_t t = 0; t < kLength; ++t) {
                const std::size_t at = row * kLength + t;
                generation.step(std::span(ids_).subspan(at, 1), got);
                for (std::size_t i = 0; i < kVocabulary; ++i)
                    worst = worse(worst, static_cast<double>(std::abs(got[i] - wanted[at * kVocabulary + i])));
            }
        }
        return worst;
    }
};

TEST_P(PeftGoldenTest, LogitsLossAndGradientsAreThoseOfPeft) {
    const auto model = load(options());
    EXPECT_LE(worst_logit(*model), 1e-4);
    EXPECT_NEAR(model->evaluate(rows()) / golden_loss(), 1.0, 1e-5);
    EXPECT_NEAR(model->train(rows()) / golden_loss(), 1.0, 1e-5);
    EXPECT_EQ(expect_golden_gradients(*model), adapter_.header().tensors.size());
}

// A control: what the keys say is seen in the logits.
TEST_P(PeftGoldenTest, WithoutTheScaleOfTheFileLogitsAreFarOff) {
    model::LoraOptions plain = options();
    plain.peft.is_rank_stabilized = !plain.peft.is_rank_stabilized;
    EXPECT_GT(worst_logit(*load(plain)), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, PeftGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(kernels::tested_backends()),
                                            ::testing::Values("rslora", "patterns", "regex", "layers")),
                         [](const auto& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

INSTANTIATE_TEST_SUITE_P(All, LoraGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(kernels::tested_backends()),
                                            ::testing::Values("llama", "llama_heads", "opt", "opt_heads")),
                         [](const auto& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param);
                         });

}  // namespace
}  // namespace atl::numerics
