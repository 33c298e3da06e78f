#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "trainer/model/initialize.h"
#include "trainer/model/lora.h"
#include "trainer/model/model.h"
#include "trainer/model/testing/tiny_config.h"

namespace atl::model {
namespace {

ModelConfig config_of(std::string_view family) {
    ModelConfig config = tiny_config(3);
    config.architecture.qkv_bias = family == "qwen2" || family == "opt";
    config.architecture.head_norms = family == "qwen3";
    if (family != "opt") return config;
    config.num_key_value_heads = 4;
    config.tie_word_embeddings = true;
    config.architecture.norm = NormKind::kLayer;
    config.architecture.activation = Activation::kRelu;
    config.architecture.positions = Positions::kLearned;
    config.architecture.out_bias = config.architecture.feed_forward_bias = true;
    return config;
}

const Parameter& find(const Model& model, const std::string& name) {
    for (const FsdpUnit& unit : model.units) {
        for (const Parameter& parameter : unit.parameters)
            if (parameter.name == name) return parameter;
    }
    check(false, "no parameter " + name);
    std::abort();
}

// How many parts hold each element of every tensor.
std::map<std::string, std::vector<int>> count_holders(const std::vector<Model>& parts) {
    std::map<std::string, std::vector<int>> holders;
    for (const Model& model : parts) {
        for (const FsdpUnit& unit : model.units) {
            for (const Parameter& parameter : unit.parameters) {
                const Slice slice = parameter.slice();
                auto& counts = holders[parameter.name];
                counts.resize(static_cast<std::size_t>(parameter.shape_in_file().front() * slice.width));
                for (const SliceRun& run : runs_of(slice, 0, parameter.element_count())) {
                    for (std::int64_t i = 0; i < run.count; ++i) ++counts[static_cast<std::size_t>(run.in_matrix + i)];
                }
            }
        }
    }
    return holders;
}

class FamilyPartTest : public testing::TestWithParam<const char*> {};

TEST_P(FamilyPartTest, PartsHoldEveryElementOnceAndEachAllOfWhatIsNotCut) {
    const ModelConfig config = config_of(GetParam());
    ASSERT_TRUE(check_parts(config, 2, 1).ok());
    Model whole = make_model(config);
    std::vector<Model> parts;
    for (int rank = 0; rank < 2; ++rank) parts.push_back(make_model(config, {.tensor_rank = rank, .tensor_ranks = 2}));
    const LoraOptions adapters{.rank = 2, .alpha = 4, .targets = {"all-linear"}};
    ASSERT_TRUE(add_adapters(whole, adapters).ok());
    for (Model& part : parts) ASSERT_TRUE(add_adapters(part, adapters).ok());
    const auto holders = count_holders(parts);
    std::set<std::string> cut;
    for (const FsdpUnit& unit : whole.units) {
        for (const Parameter& parameter : unit.parameters) {
            const std::vector<int>& counts = holders.at(parameter.name);
            ASSERT_EQ(std::ssize(counts), parameter.element_count()) << parameter.name;
            EXPECT_EQ(find(parts[0], parameter.name).shape_in_file(), parameter.shape) << parameter.name;
            const bool is_cut = find(parts[0], parameter.name).is_slice();
            if (is_cut) cut.insert(parameter.name);
            EXPECT_TRUE(std::ranges::all_of(counts, [&](int count) { return count == (is_cut ? 1 : 2); }))
                << parameter.name;
        }
    }
    EXPECT_TRUE(cut.contains(std::string(config.architecture.prefix) + "layers.2.self_attn.q_proj.weight"));
    EXPECT_FALSE(cut.contains(std::string(config.architecture.prefix) + "embed_tokens.weight"));
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyPartTest, testing::Values("llama", "qwen2", "qwen3", "opt"));

TEST(PartTest, StagesHaveAllBlocksInOrder) {
    ModelConfig config = config_of("llama");
    config.tie_word_embeddings = true;
    for (const int stages : {1, 2, 3, 5}) {
        std::vector<std::string> names;
        for (int stage = 0; stage < stages; ++stage) {
            const Model model = make_model(config, model_part(config, 0, 1, stage, stages));
            for (const auto& block : model.blocks) names.push_back(block->name());
            if (stage + 1 < stages) continue;
            EXPECT_EQ(find(model, "model.embed_tokens.weight").element_count(), 50 * 24) << "the head's";
        }
        EXPECT_EQ(names, (std::vector<std::string>{"embedding", "layers.0", "layers.1", "layers.2", "head"}));
    }
}

TEST(PartTest, WhatDoesNotDivideIsNamed) {
    const ModelConfig config = config_of("llama");
    EXPECT_EQ(check_parts(config, 4, 1).error().field, "num_key_value_heads");
    EXPECT_EQ(check_parts(config, 3, 1).error().field, "num_attention_heads");
    EXPECT_EQ(check_parts(config, 2, 6).error().field, "num_hidden_layers");
}

// One layer, with the initial values of its slices.
class Layer {
  public:
    Layer(const ModelConfig& config, int rank, int ranks)
        : model_(make_model(config, {.tensor_rank = rank, .tensor_ranks = ranks, .first_block = 1, .block_count = 1})) {
        const FsdpUnit& unit = model_.units.front();
        weights_.resize(static_cast<std::size_t>(unit.element_count));
        for (const Parameter& parameter : unit.parameters) {
            const auto values = values_of(parameter);
            for (const SliceRun& run : runs_of(parameter.slice(), 0, parameter.element_count()))
                initialize(parameter, 7, run.in_matrix,
                           values.subspan(static_cast<std::size_t>(run.at), static_cast<std::size_t>(run.count)));
        }
    }
    void clear(const std::string& name) { std::ranges::fill(values_of(find(model_, name)), 0.0F); }

    std::vector<float> forward(std::vector<float> input, kernels::Backend& backend) {
        const BatchShape shape{2, 4};
        const std::vector<std::int32_t> ids(8, 1);
        tensor::Arena arena(backend.allocate(1 << 20).value());
        BatchBuffers batch = BatchBuffers::allocate(arena, arena, backend, model_.config, shape);
        check(batch.load(backend, {shape, ids, ids, {}}).ok(), "the batch does not load");
        const FsdpUnit& unit = model_.units.front();
        const UnitView view(unit, tensor::Tensor(weights_.data(), tensor::DType::kF32, {unit.element_count}));
        const Context context{backend, arena, batch.batch()};
        const Tensor x(input.data(), tensor::DType::kF32, {8, model_.config.hidden_size});
        model_.blocks.front()->forward(context, std::span(&view, 1), x, x, {}, nullptr);
        return input;
    }

  private:
    std::span<float> values_of(const Parameter& parameter) {
        return std::span(weights_).subspan(static_cast<std::size_t>(parameter.offset),
                                           static_cast<std::size_t>(parameter.element_count()));
    }
    Model model_;
    std::vector<float> weights_;
};

// The sum that tensor parallelism completes, of attention and of the feed-forward, with the other one taken out.
TEST(PartTest, PartialResultsOfALayerAddUpToThatOfTheWhole) {
    const auto backend = kernels::make_cpu_backend(1).value();
    for (const char* family : {"llama", "qwen2", "qwen3"}) {
        const ModelConfig config = config_of(family);
        std::vector<float> x(8 * 24);
        initialize({.name = "x", .shape = {8, 24}, .init_deviation = 1.0F}, 3, 0, x);
        for (const char* taken_out : {"self_attn.o_proj", "mlp.down_proj"}) {
            const auto run = [&](int rank, int ranks) {
                Layer layer(config, rank, ranks);
                layer.clear("model.layers.0." + std::string(taken_out) + ".weight");
                return layer.forward(x, *backend);
            };
            const std::vector<float> whole = run(0, 1), first = run(0, 2), second = run(1, 2);
            float largest = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
                largest = std::max(largest, std::abs(whole[i] - x[i]));
                EXPECT_LT(std::abs(first[i] + second[i] - x[i] - whole[i]), 1e-6F) << family << " " << taken_out;
            }
            EXPECT_GT(largest, 1e-4F) << family << " " << taken_out;
        }
    }
}

}  // namespace
}  // namespace atl::model
