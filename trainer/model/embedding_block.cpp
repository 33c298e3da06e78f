#include "trainer/model/blocks.h"

namespace atl::model {

EmbeddingBlock::EmbeddingBlock(const ModelConfig& config, std::size_t unit)
    : units_{unit}, hidden_(config.hidden_size) {}

void EmbeddingBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor&,
                             const Tensor& output, std::byte*, const Loss*) const {
    context.backend.embedding_forward(units[0].weight(0), context.batch.input_ids, output);
}

void EmbeddingBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor&, std::byte*,
                              const Tensor& output_gradient, const Tensor&, const Loss*) const {
    if (!units[0].trains()) return;
    context.backend.embedding_backward(context.batch.input_ids, output_gradient, units[0].gradient(0),
                                       units[0].accumulate());
}

void EmbeddingBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                           const Tensor& output, LayerCache&) const {
    forward(context, units, input, output, nullptr, nullptr);
}

}  // namespace atl::model
