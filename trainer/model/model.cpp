#include "trainer/model/model.h"

#include <algorithm>
#include <utility>

#include "trainer/model/blocks.h"

namespace atl::model {

namespace {

std::int64_t block_count(const ModelConfig& config) {
    return config.num_hidden_layers + 2;
}

// That of the same model with a part of its heads and feed-forward channels.
ModelConfig local_config(const ModelConfig& whole, int tensor_ranks) {
    ModelConfig config = whole;
    config.num_attention_heads /= tensor_ranks;
    config.num_key_value_heads /= tensor_ranks;
    config.intermediate_size /= tensor_ranks;
    return config;
}

}  // namespace

ModelPart model_part(const ModelConfig& config, int tensor_rank, int tensor_ranks, int stage, int stages) {
    const std::int64_t blocks = block_count(config);
    const std::int64_t first = blocks * stage / stages;
    return {tensor_rank, tensor_ranks, first, blocks * (stage + 1) / stages - first};
}

Status check_parts(const ModelConfig& config, int tensor_ranks, int stages) {
    const std::pair<const char*, std::int64_t> divided[] = {{"num_attention_heads", config.num_attention_heads},
                                                            {"num_key_value_heads", config.num_key_value_heads},
                                                            {"intermediate_size", config.intermediate_size}};
    for (const auto& [key, count] : divided) {
        if (count % tensor_ranks == 0) continue;
        return invalid_argument(
            key, std::to_string(count) + " does not divide into " + std::to_string(tensor_ranks) + " equal parts");
    }
    if (stages <= block_count(config)) return {};
    return invalid_argument("num_hidden_layers", std::to_string(config.num_hidden_layers) +
                                                     " layers, the embedding and the head are fewer blocks than " +
                                                     std::to_string(stages) + " stages");
}

Model make_model(const ModelConfig& config, const ModelPart& part) {
    check(check_parts(config, part.tensor_ranks, 1).ok(), "make_model: the layers do not divide into such parts");
    Model model{.config = config, .part = part, .formats = {}, .units = {}, .blocks = {}};
    const ModelConfig local = local_config(config, part.tensor_ranks);
    const std::int64_t blocks = block_count(config);
    const std::int64_t end = part.block_count == 0 ? blocks : part.first_block + part.block_count;
    for (std::int64_t block = part.first_block; block < end; ++block) {
        if (block == 0) {
            model.blocks.push_back(std::make_unique<EmbeddingBlock>(local, model.units));
        } else if (block + 1 < blocks) {
            model.blocks.push_back(std::make_unique<DecoderBlock>(local, block - 1, model.units));
        } else {
            model.blocks.push_back(std::make_unique<HeadBlock>(local, model.units, part.first_block == 0));
        }
    }
    for (FsdpUnit& unit : model.units) {
        for (Parameter& parameter : unit.parameters) parameter.become_part(part.tensor_rank, part.tensor_ranks);
    }
    return model;
}

void quantize_layers(Model& model, tensor::DType format) {
    check(model.part.tensor_ranks == 1, "quantize_layers: the scales of a slice are not those of the matrix");
    for (FsdpUnit& unit : model.units) unit.frozen = unit.frozen || !unit.is_adapter;
    for (const auto& block : model.blocks) {
        if (!block->is_layer()) continue;
        model.units[block->units().front()].quantize(format);
        for (FusedLinear* const linear : block->linears()) linear->become_quantized();
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
