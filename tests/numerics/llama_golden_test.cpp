// Loss and gradients of Llama, and of Mistral, Qwen2 and Qwen3, against PyTorch's transformers, on every backend.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "tests/numerics/golden.h"
#include "trainer/kernels/testing/backends.h"

namespace atl::numerics {
namespace {

constexpr double kLossTolerance = 1e-5;      // relative
constexpr double kGradientTolerance = 1e-5;  // relative L2, each tensor

struct Case {
    std::string folder;
    std::string golden;
    std::string backend;
};

void PrintTo(const Case& value, std::ostream* out) {
    *out << value.golden << " on " << value.backend;
}

std::vector<Case> cases_on(const std::vector<std::string>& backends) {
    std::vector<Case> cases;
    for (const std::string& backend : backends) {
        for (const char* golden : {"mha", "gqa_tied", "llama3_rope", "dynamic_rope", "packed"})
            cases.push_back({"llama", golden, backend});
        if (has_tiles(backend)) cases.push_back({"llama", "tiles", backend});
        for (const char* golden : {"mistral", "mistral_window", "qwen2", "qwen2_packed", "qwen3", "qwen3_biased",
                                   "qwen3_packed", "yarn", "yarn_untruncated", "yarn_factor"})
            cases.push_back({"families", golden, backend});
    }
    return cases;
}

class LlamaGoldenTest : public ::testing::TestWithParam<Case> {
  protected:
    Golden golden_{GetParam().golden, GetParam().folder};
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam().backend, 1);
    std::unique_ptr<EngineModel> model_ = golden_.load(*backend_);

    double golden_loss() const { return static_cast<double>(golden_.floats("loss")[0]); }
    double worst_gradient() {
        double worst = 0;
        for (const std::string& name : golden_.names("gradient:")) {
            worst = worse(worst, golden_.gradient_error(name, model_->gradient(name)));
        }
        return worst;
    }
};

TEST_P(LlamaGoldenTest, TheLossIsThatOfTransformers) {
    EXPECT_NEAR(model_->evaluate(golden_.rows()) / golden_loss(), 1.0, kLossTolerance);
    EXPECT_NEAR(model_->train(golden_.rows()) / golden_loss(), 1.0, kLossTolerance);
}

TEST_P(LlamaGoldenTest, EveryParametersGradientIsThatOfTransformers) {
    model_->train(golden_.rows());
    std::size_t parameters = 0;
    for (const auto& unit : model_->model().units) parameters += unit.parameters.size();
    EXPECT_EQ(golden_.names("gradient:").size(), parameters);
    for (const std::string& name : golden_.names("gradient:")) {
        EXPECT_LE(golden_.gradient_error(name, model_->gradient(name)), kGradientTolerance) << name;
    }
}

TEST_P(LlamaGoldenTest, RecomputedActivationsGiveTheSameBits) {
    const double loss = model_->train(golden_.rows());
    using parallel::ActivationCheckpointing;
    for (const auto what : {ActivationCheckpointing::kFeedForward, ActivationCheckpointing::kAllButAttention,
                            ActivationCheckpointing::kFull}) {
        const auto recomputed = golden_.load(*backend_, {.change = {}, .checkpointing = {what}});
        EXPECT_EQ(recomputed->train(golden_.rows()), loss);
        for (const std::string& name : golden_.names("gradient:"))
            EXPECT_TRUE(recomputed->gradient(name) == model_->gradient(name)) << static_cast<int>(what) << name;
    }
}

TEST_P(LlamaGoldenTest, AccumulatingTwoStepsDoublesTheGradients) {
    model_->train(golden_.rows(), 2);
    for (const std::string& name : golden_.names("gradient:")) {
        auto twice = model_->gradient(name);
        for (float& value : twice) value /= 2;
        EXPECT_LE(golden_.gradient_error(name, twice), kGradientTolerance) << name;
    }
}

// Controls: what must not pass, to show that the tolerances can tell.
class LlamaControlTest : public LlamaGoldenTest {};

TEST_P(LlamaControlTest, InterleavedRotationIsFarOff) {
    const auto& config = golden_.config();
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        for (const char* projection : {"q_proj", "k_proj"}) {
            const std::string name = "model.layers." + std::to_string(layer) + ".self_attn." + projection + ".weight";
            const std::vector<float> halves = model_->weight(name);
            std::vector<float> weight(halves.size());
            const std::int64_t rows = static_cast<std::int64_t>(weight.size()) / config.hidden_size;
            for (std::int64_t row = 0; row < rows; ++row) {
                const std::int64_t channel = row % config.head_dim, head = row - channel;
                const std::int64_t from = head + channel / 2 + channel % 2 * (config.head_dim / 2);
                std::copy_n(halves.begin() + from * config.hidden_size, config.hidden_size,
                            weight.begin() + row * config.hidden_size);
            }
            model_->set_weight(name, weight);
        }
    }
    EXPECT_GT(std::abs(model_->evaluate(golden_.rows()) / golden_loss() - 1.0), 100 * kLossTolerance);
}

TEST_P(LlamaControlTest, LabelsShiftedTwiceAreFarOff) {
    auto rows = golden_.rows();
    std::vector<std::int32_t> labels(rows.labels.begin(), rows.labels.end());
    std::rotate(labels.begin(), labels.begin() + 1, labels.end());
    rows.labels = labels;
    EXPECT_GT(std::abs(model_->train(rows) / golden_loss() - 1.0), 10 * kLossTolerance);
    EXPECT_GT(worst_gradient(), 100 * kGradientTolerance);
}

TEST(LlamaTilesTest, ARowOfAGradientThatIsLeftOutIsFarOff) {
    const Golden golden("tiles");
    const auto backend = kernels::make_cpu_backend(1).value();
    const auto model = golden.load(*backend);
    model->train(golden.rows());
    for (const std::string name : {"model.layers.1.mlp.gate_proj.weight", "model.layers.0.self_attn.v_proj.weight"}) {
        std::vector<float> gradient = model->gradient(name);
        std::fill(gradient.end() - golden.config().hidden_size, gradient.end(), 0.0F);
        EXPECT_GT(golden.gradient_error(name, gradient), 100 * kGradientTolerance) << name;
    }
}

TEST(LlamaPackingTest, DocumentsThatSeeEachOtherAreFarOff) {
    const Golden golden("packed");
    const auto backend = kernels::make_cpu_backend(1).value();
    auto rows = golden.rows();
    rows.segment_ids = {};
    const double loss = golden.load(*backend)->train(rows);
    EXPECT_GT(std::abs(loss / static_cast<double>(golden.floats("loss")[0]) - 1.0), 100 * kLossTolerance);
}

TEST(LlamaDynamicRopeTest, TheRotationOfTheShortContextIsFarOff) {
    const Golden golden("dynamic_rope");
    const auto backend = kernels::make_cpu_backend(1).value();
    const double loss =
        golden.load(*backend, {.change = [](auto& config) { config.rope.kind = model::RopeKind::kDefault; }})
            ->train(golden.rows());
    EXPECT_GT(std::abs(loss / static_cast<double>(golden.floats("loss")[0]) - 1.0), 100 * kLossTolerance);
}

class FamilyControlTest : public ::testing::Test {
  protected:
    // How far the loss is from the golden one, as a part of it, with a change of the model.
    static double distance(const Golden& golden, EngineModel& model) {
        return std::abs(model.train(golden.rows()) / static_cast<double>(golden.floats("loss")[0]) - 1.0);
    }
    double distance(const std::string& name, const std::function<void(model::ModelConfig&)>& change) {
        const Golden golden(name, "families");
        return distance(golden, *golden.load(*backend_, {.change = change}));
    }

    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1).value();
};

TEST_F(FamilyControlTest, NormsOfHeadsWithTheWeightsSwappedAreFarOff) {
    const Golden golden("qwen3", "families");
    const auto model = golden.load(*backend_);
    EXPECT_LE(distance(golden, *model), kLossTolerance);
    const std::string query = "model.layers.0.self_attn.q_norm.weight", key = "model.layers.0.self_attn.k_norm.weight";
    const std::vector<float> of_query = model->weight(query);
    model->set_weight(query, model->weight(key));
    model->set_weight(key, of_query);
    EXPECT_GT(distance(golden, *model), 10 * kLossTolerance);
}

TEST_F(FamilyControlTest, EachBiasOfTheLinearsCounts) {
    for (const auto& [name, bias] :
         {std::pair{"qwen2", "q_proj"}, {"qwen2", "v_proj"}, {"qwen3_biased", "k_proj"}, {"qwen3_biased", "o_proj"}}) {
        const Golden golden(name, "families");
        const auto model = golden.load(*backend_);
        const std::string changed = "model.layers.1.self_attn." + std::string(bias) + ".bias";
        model->set_weight(changed, std::vector<float>(model->weight(changed).size()));
        EXPECT_GT(distance(golden, *model), 10 * kLossTolerance) << name << " " << bias;
    }
}

TEST_F(FamilyControlTest, YarnWithoutOneOfItsPartsIsFarOff) {
    const double far = 10 * kLossTolerance;
    EXPECT_GT(distance("yarn", [](auto& config) { config.rope.attention_factor = 1.0; }), far);
    EXPECT_GT(distance("yarn", [](auto& config) { config.rope.truncate = false; }), far);
    EXPECT_GT(distance("yarn", [](auto& config) { config.rope.kind = model::RopeKind::kLinear; }), far);
    EXPECT_GT(distance("yarn", [](auto& config) { config.rope.original_max_position_embeddings = 64; }), far);
    EXPECT_GT(distance("yarn", [](auto& config) { config.rope.beta_fast = 32.0; }), far);
    EXPECT_GT(distance("yarn_untruncated", [](auto& config) { config.rope.truncate = true; }), far);
}

TEST(LlamaThreadsTest, TheBitsDoNotDependOnTheNumberOfThreads) {
    const Golden golden("gqa_tied");
    const auto one = kernels::make_cpu_backend(1).value(), three = kernels::make_cpu_backend(3).value();
    const auto alone = golden.load(*one), shared = golden.load(*three);
    EXPECT_EQ(alone->train(golden.rows()), shared->train(golden.rows()));
    for (const std::string& name : golden.names("gradient:")) {
        EXPECT_TRUE(alone->gradient(name) == shared->gradient(name)) << name;
    }
}

std::string name_of(const ::testing::TestParamInfo<Case>& instance) {
    const Case& value = instance.param;
    return (value.folder == "llama" ? "" : value.folder + "_") + value.golden + "_" + value.backend;
}

INSTANTIATE_TEST_SUITE_P(All, LlamaGoldenTest, ::testing::ValuesIn(cases_on(kernels::tested_backends())), name_of);
INSTANTIATE_TEST_SUITE_P(All, LlamaControlTest, ::testing::ValuesIn(cases_on(kernels::cpu_instruction_sets())),
                         name_of);

}  // namespace
}  // namespace atl::numerics
