// The loss in several chunks of rows, the last one incomplete, against fp64; and a whole model whose head needs them.

#include "trainer/model/chunked_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"
#include "trainer/model/initialize.h"
#include "trainer/model/lora.h"
#include "trainer/model/testing/reference_driver.h"

namespace atl::model {
namespace {

using kernels::OnDevice;
using kernels::relative_l2;

constexpr std::int64_t kRows = 37, kChannels = 11, kVocabulary = 53, kChunk = 16;
constexpr double kLossTolerance = 1e-6;  // relative L2

// Losses and gradients straight from the definition, of the targets of each row.
struct FullLoss {
    std::vector<double> losses, table_gradient, feature_gradients;

    FullLoss(const OnDevice<>& features, const OnDevice<>& table, const std::vector<std::int32_t>& targets,
             double scale)
        : losses(kRows), table_gradient(kVocabulary * kChannels), feature_gradients(kRows * kChannels) {
        for (std::int64_t row = 0; row < kRows; ++row) {
            const std::int32_t target = targets[static_cast<std::size_t>(row)];
            if (target != kernels::kIgnoredLabel) add_row(features, table, row, target, scale);
        }
    }

    void add_row(const OnDevice<>& features, const OnDevice<>& table, std::int64_t row, std::int32_t target,
                 double scale) {
        std::vector<double> p;
        double total = 0;
        for (std::int64_t v = 0; v < kVocabulary; ++v) {
            double logit = 0;
            for (std::int64_t c = 0; c < kChannels; ++c)
                logit += features[row * kChannels + c] * table[v * kChannels + c];
            p.push_back(std::exp(logit));
            total += p.back();
        }
        losses[static_cast<std::size_t>(row)] = std::log(total / p[static_cast<std::size_t>(target)]);
        for (std::int64_t v = 0; v < kVocabulary; ++v) {
            const double slope = scale * (p[static_cast<std::size_t>(v)] / total - (v == target ? 1 : 0));
            for (std::int64_t c = 0; c < kChannels; ++c) {
                table_gradient[static_cast<std::size_t>(v * kChannels + c)] += slope * features[row * kChannels + c];
                feature_gradients[static_cast<std::size_t>(row * kChannels + c)] += slope * table[v * kChannels + c];
            }
        }
    }
};

class ChunkedLossTest : public ::testing::TestWithParam<std::string> {
  protected:
    ChunkedLossTest() { batch_.targets = targets_.tensor; }
    static std::vector<std::int32_t> make_targets() {
        std::vector<std::int32_t> targets;
        for (std::int32_t row = 0; row < kRows; ++row) {
            targets.push_back(row % 7 == 3 ? kernels::kIgnoredLabel : row * 29 % kVocabulary);
        }
        return targets;
    }
    Loss loss() { return {losses_.tensor, 0.25F}; }
    static FsdpUnit table_group() {
        FsdpUnit unit{.name = "head", .parameters = {}};
        unit.add({.name = "lm_head.weight", .shape = {kVocabulary, kChannels}});
        return unit;
    }
    std::array<UnitView, 2> views(const Tensor& table_gradient, bool accumulate) const {
        return {UnitView(unit_, table_.tensor, table_gradient, accumulate), UnitView()};
    }
    void backward(const Tensor& table_gradient, bool accumulate) {
        chunked_loss_backward(context_, run_, views(table_gradient, accumulate), features_.tensor,
                              {.logits = logits_.tensor, .lora_hidden = {}, .lora_hidden_gradient = {}}, loss(),
                              feature_gradients_.tensor);
    }

    const std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam());
    tensor::Arena workspace_{backend_->allocate(1 << 16).value()};
    Batch batch_;
    const Context context_{.backend = *backend_, .workspace = workspace_, .batch = batch_};
    const OnDevice<> features_ = kernels::random(*backend_, {kRows, kChannels}, 1),
                     table_ = kernels::random(*backend_, {kVocabulary, kChannels}, 2);
    const FsdpUnit unit_ = table_group();
    const FusedLinear run_{unit_, 0};
    const OnDevice<std::int32_t> targets_ = kernels::integers(*backend_, make_targets());
    OnDevice<> logits_{*backend_, {kChunk, kVocabulary}}, losses_{*backend_, {kRows}};
    OnDevice<> feature_gradients_{*backend_, {kRows, kChannels}};
    OnDevice<> table_gradient_{*backend_, {kVocabulary, kChannels}, 2.0F};
};

TEST_P(ChunkedLossTest, LossesAndGradientsOfThreeChunksAreTheDefinition) {
    const FullLoss expected(features_, table_, targets_.given, 0.25);
    chunked_loss_forward(context_, run_, views({}, false), features_.tensor,
                         {.logits = logits_.tensor, .lora_hidden = {}, .lora_hidden_gradient = {}}, loss());
    EXPECT_LE(relative_l2(losses_, expected.losses), kLossTolerance);
    losses_.write(std::vector<float>(kRows, -1.0F));
    backward(table_gradient_.tensor, false);
    EXPECT_LE(relative_l2(losses_, expected.losses), kLossTolerance);
    EXPECT_LE(relative_l2(table_gradient_, expected.table_gradient), kLossTolerance);
    EXPECT_LE(relative_l2(feature_gradients_, expected.feature_gradients), kLossTolerance);
}

TEST_P(ChunkedLossTest, TheTablesGradientIsAddedOrLeftOut) {
    const FullLoss expected(features_, table_, targets_.given, 0.25);
    std::vector<double> added = expected.table_gradient;
    for (double& value : added) value += 2;
    backward(table_gradient_.tensor, true);
    EXPECT_LE(relative_l2(table_gradient_, added), kLossTolerance);
    feature_gradients_.write(std::vector<float>(kRows * kChannels, -1.0F));
    backward({}, false);
    EXPECT_LE(relative_l2(feature_gradients_, expected.feature_gradients), kLossTolerance);
}

// A control: the table's gradient of the last chunk alone, or targets of the chunk before, must be far off.
TEST_P(ChunkedLossTest, TheLastChunkAloneIsFarOff) {
    std::vector<std::int32_t> last = targets_.given, shifted = targets_.given;
    std::fill_n(last.begin(), 2 * kChunk, kernels::kIgnoredLabel);
    std::rotate(shifted.begin(), shifted.begin() + kChunk, shifted.end());
    backward(table_gradient_.tensor, false);
    EXPECT_GT(relative_l2(table_gradient_, FullLoss(features_, table_, last, 0.25).table_gradient),
              1000 * kLossTolerance);
    EXPECT_GT(relative_l2(losses_, FullLoss(features_, table_, shifted, 0.25).losses), 1000 * kLossTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, ChunkedLossTest, ::testing::ValuesIn(kernels::tested_backends()),
                         [](const auto& instance) { return instance.param; });

// The smallest model whose loss is cut: a chunk has 64 rows at least.
class LargeVocabularyTest : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr std::int64_t kSequences = 3, kLength = 50;

    static ModelConfig config() {
        ModelConfig config;
        config.vocab_size = 40000;
        config.hidden_size = 8;
        config.intermediate_size = 12;
        config.num_hidden_layers = 1;
        config.num_attention_heads = 2;
        config.num_key_value_heads = 1;
        config.head_dim = 4;
        config.max_position_embeddings = 64;
        config.tie_word_embeddings = GetParam() == "Tied";
        return config;
    }
    ReferenceDriver load() {
        Model model = make_model(config());
        if (GetParam() == "Adapted")
            check(add_adapters(model, {.rank = 2, .alpha = 3, .dropout = 0, .targets = {"lm_head"}}).ok(), "adapters");
        ReferenceDriver resident(std::move(model), *backend_);
        for (const auto& unit : resident.model().units) {
            for (Parameter parameter : unit.parameters) {
                if (parameter.init == Init::kZeros) parameter.init = Init::kNormal;
                parameter.init_deviation = 0.3F;
                initialize(parameter, 3, 0, resident.weight(parameter.name));
            }
        }
        return resident;
    }

    const std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(2).value();
};

TEST_P(LargeVocabularyTest, ABatchOfThreeChunksIsItsSequencesOneByOne) {
    ASSERT_LT(2 * loss_chunk_tokens(*backend_, {kSequences, kLength}, config().vocab_size), kSequences * kLength);
    ASSERT_EQ(loss_chunk_tokens(*backend_, {1, kLength}, config().vocab_size), kLength);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < kSequences * kLength; ++i) ids.push_back(i * 7919 % 40000);
    const auto sequences = [&](std::int64_t first, std::int64_t count) {
        return HostBatch{{count, kLength}, std::span(ids).subspan(first * kLength, count * kLength), {}, {}};
    };
    ReferenceDriver whole = load(), alone = load();
    const double loss = whole.train(sequences(0, kSequences));
    EXPECT_NEAR(whole.evaluate(sequences(0, kSequences)) / loss, 1, 1e-7);
    double sum = 0;
    for (std::int64_t i = 0; i < kSequences; ++i) {
        sum += alone.train(sequences(i, 1), {.accumulate = i > 0, .loss_divisor = kSequences * (kLength - 1.0)});
    }
    EXPECT_NEAR(loss * kSequences / sum, 1, 1e-6);
    for (const auto& unit : whole.model().units) {
        if (unit.frozen) continue;
        for (const Parameter& parameter : unit.parameters) {
            const auto one = alone.gradient(parameter.name), all = whole.gradient(parameter.name);
            double difference = 0, size = 0;
            for (std::size_t i = 0; i < one.size(); ++i) {
                difference += std::pow(static_cast<double>(one[i]) - static_cast<double>(all[i]), 2);
                size += std::pow(static_cast<double>(one[i]), 2);
            }
            EXPECT_LE(std::sqrt(difference / size), 1e-5) << parameter.name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, LargeVocabularyTest, ::testing::Values("Tied", "Untied", "Adapted"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace atl::model
