#include "trainer/model/model.h"

#include <algorithm>

#include "trainer/model/blocks.h"

namespace atl::model {

Model make_model(const ModelConfig& config) {
    Model model{.config = config, .formats = {}, .units = {}, .blocks = {}};
    model.blocks.push_back(std::make_unique<EmbeddingBlock>(config, model.units));
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
        model.blocks.push_back(std::make_unique<DecoderBlock>(config, layer, model.units));
    model.blocks.push_back(std::make_unique<HeadBlock>(config, model.units));
    return model;
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

void Model::use_formats(const kernels::Formats& given) {
    formats = given;
    for (const auto& block : blocks) block->use_formats(given);
    for (FsdpUnit& unit : units) {
        if (!unit.is_adapter && !unit.is_quantized()) unit.storage = given.weights;
    }
}

std::vector<std::size_t> Model::first_block_of_unit() const {
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
