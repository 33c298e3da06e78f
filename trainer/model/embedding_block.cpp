#include "trainer/model/blocks.h"

namespace atl::model {

EmbeddingBlock::EmbeddingBlock(const ModelConfig& config, std::size_t group)
    : groups_{group}, hidden_(config.hidden_size) {}

void EmbeddingBlock::forward(const Context& context, std::span<const GroupView> groups, const Tensor&,
                             const Tensor& output, std::byte*, const Loss*) const {
    context.backend.embedding_forward(groups[0].weight(0), context.batch.input_ids, output);
}

void EmbeddingBlock::backward(const Context& context, std::span<const GroupView> groups, const Tensor&, std::byte*,
                              const Tensor& output_gradient, const Tensor&, const Loss*) const {
    if (!groups[0].trains()) return;
    context.backend.embedding_backward(context.batch.input_ids, output_gradient, groups[0].gradient(0),
                                       groups[0].accumulate());
}

void EmbeddingBlock::infer(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                           const Tensor& output, LayerCache&) const {
    forward(context, groups, input, output, nullptr, nullptr);
}

}  // namespace atl::model
