#include "trainer/model/model.h"

#include <algorithm>
#include <utility>

#include "trainer/model/blocks.h"
#include "trainer/model/opt_blocks.h"

namespace atl::model {
namespace {

Parameter table(const ModelConfig& config, const char* name) {
    return {.name = name,
            .shape = {config.vocab_size, config.embedding_size()},
            .init_deviation = static_cast<float>(config.initializer_range)};
}

FsdpUnit embedding_group(const ModelConfig& config, const char* name) {
    FsdpUnit unit{.name = "embedding", .parameters = {}};
    unit.add(table(config, name));
    return unit;
}

FsdpUnit head_group(const ModelConfig& config) {
    FsdpUnit unit{.name = "head", .parameters = {}};
    unit.add({.name = "model.norm.weight", .shape = {config.hidden_size}, .init = Init::kOnes, .is_norm = true});
    if (!config.tie_word_embeddings) unit.add(table(config, kHeadWeight));
    return unit;
}

// The head's own unit, which is the last, and the tied embedding's.
std::vector<std::size_t> head_groups(const Model& model) {
    std::vector<std::size_t> units{model.units.size() - 1};
    if (model.config.tie_word_embeddings) units.push_back(0);
    return units;
}

Model make_llama(const ModelConfig& config) {
    Model model{.config = config, .units = {}, .blocks = {}};
    model.units.push_back(embedding_group(config, "model.embed_tokens.weight"));
    model.blocks.push_back(std::make_unique<EmbeddingBlock>(config, 0));
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        model.units.push_back(DecoderBlock::make_group(config, layer));
        model.blocks.push_back(std::make_unique<DecoderBlock>(config, layer, model.units.size() - 1));
    }
    model.units.push_back(head_group(config));
    const std::vector<std::size_t> units = head_groups(model);
    model.blocks.push_back(
        std::make_unique<HeadBlock>(config, units, model.units[units.back()], config.tie_word_embeddings ? 0 : 1));
    return model;
}

// The positions are a unit of their own: the head's backward pass comes first and begins the embedding's gradient.
Model make_opt(const ModelConfig& config) {
    Model model{.config = config, .units = {}, .blocks = {}};
    model.units.push_back(embedding_group(config, "model.decoder.embed_tokens.weight"));
    model.units.push_back(OptEmbeddingBlock::make_positions_group(config));
    model.blocks.push_back(std::make_unique<OptEmbeddingBlock>(config, std::vector<std::size_t>{1, 0}));
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        model.units.push_back(OptBlock::make_group(config, layer));
        model.blocks.push_back(std::make_unique<OptBlock>(config, layer, model.units.size() - 1));
    }
    model.units.push_back(OptHeadBlock::make_group(config));
    const std::vector<std::size_t> units = head_groups(model);
    const FsdpUnit& table = model.units[units.back()];
    model.blocks.push_back(std::make_unique<OptHeadBlock>(config, units, table, table.parameters.size() - 1));
    return model;
}

}  // namespace

Result<Model> make_model(const ModelConfig& config) {
    return config.architecture == Architecture::kOpt ? make_opt(config) : make_llama(config);
}

std::vector<std::string> ignorable_tensors(const ModelConfig& config) {
    std::vector<std::string> names = {"*.rotary_emb.inv_freq"};
    if (config.tie_word_embeddings) names.emplace_back(kHeadWeight);
    return names;
}

void quantize_layers(Model& model, tensor::DType format) {
    for (FsdpUnit& unit : model.units) unit.frozen = unit.frozen || !unit.is_adapter;
    for (const auto& block : model.blocks) {
        if (block->is_layer()) model.units[block->units().front()].quantize(format);
    }
}

std::vector<std::size_t> Model::first_block_of_group() const {
    std::vector<std::size_t> first(units.size(), blocks.size());
    for (std::size_t block = blocks.size(); block-- > 0;) {
        for (const std::size_t unit : blocks[block]->units()) first[unit] = block;
    }
    return first;
}

std::size_t Model::first_trained_block() const {
    const auto trains = [&](const auto& block) {
        return std::ranges::any_of(block->units(), [&](std::size_t unit) { return !units[unit].frozen; });
    };
    return static_cast<std::size_t>(std::ranges::find_if(blocks, trains) - blocks.begin());
}

std::int64_t Model::parameter_count() const {
    std::int64_t count = 0;
    for (const FsdpUnit& unit : units) {
        for (const Parameter& parameter : unit.parameters) count += parameter.element_count();
    }
    return count;
}

double Model::forward_flops(const BatchShape& shape) const {
    double flops = 0;
    for (const auto& block : blocks) flops += block->forward_flops(shape);
    return flops;
}

}  // namespace atl::model
