#include "trainer/model/chunked_loss.h"

#include <algorithm>
#include <array>
#include <functional>

namespace atl::model {
namespace {

// What a chunk of tokens reads and writes.
struct Chunk {
    Context context;
    Tensor features, targets, losses, logits, lora_hidden, lora_hidden_gradient;
};

void for_each_chunk(const Context& context, const Tensor& features, const LossScratch& scratch, const Loss& loss,
                    const std::function<void(const Chunk& chunk)>& handle) {
    const std::int64_t tokens = features.rows(), most = scratch.logits.rows();
    const Tensor targets = context.batch.targets.reshape({tokens, 1}), losses = loss.token_losses.reshape({tokens, 1});
    for (std::int64_t begin = 0; begin < tokens; begin += most) {
        const std::int64_t count = std::min(most, tokens - begin);
        const auto first = [&](const Tensor& x) { return x.empty() ? x : x.row_range(0, count); };
        const auto part = [&](const Tensor& x) { return x.row_range(begin, count); };
        Chunk chunk{context,
                    part(features),
                    part(targets),
                    part(losses),
                    first(scratch.logits),
                    first(scratch.lora_hidden),
                    first(scratch.lora_hidden_gradient)};
        chunk.context.first_token = begin;
        handle(chunk);
    }
}

}  // namespace

std::int64_t loss_chunk_tokens(const kernels::Backend& backend, const BatchShape& shape, std::int64_t vocabulary) {
    return std::min(shape.tokens(), backend.loss_rows(vocabulary));
}

LossScratch allocate_loss(tensor::Arena& arena, const kernels::Formats& formats, const FusedLinear& table,
                          std::int64_t chunk_tokens, std::int64_t vocabulary) {
    using tensor::Category;
    const auto allocate_lora_hidden = [&] {
        return table.allocate_lora_hidden(arena, formats.activations, chunk_tokens, Category::kWorkspace);
    };
    return {.logits = arena.allocate(Category::kWorkspace, formats.activations, {chunk_tokens, vocabulary}),
            .lora_hidden = allocate_lora_hidden(),
            .lora_hidden_gradient = allocate_lora_hidden()};
}

void chunked_loss_forward(const Context& context, const FusedLinear& table, std::span<const UnitView> units,
                          const Tensor& features, const LossScratch& scratch, const Loss& loss) {
    for_each_chunk(context, features, scratch, loss, [&](const Chunk& chunk) {
        table.forward(chunk.context, units, chunk.features, chunk.logits, chunk.lora_hidden);
        context.backend.cross_entropy_forward(chunk.logits, chunk.targets, chunk.losses);
    });
}

void chunked_loss_backward(const Context& context, const FusedLinear& table, std::span<const UnitView> units,
                           const Tensor& features, const LossScratch& scratch, const Loss& loss,
                           const Tensor& feature_gradients) {
    const std::array added = {units[0].accumulating(), units[1].accumulating()};
    for_each_chunk(context, features, scratch, loss, [&](const Chunk& chunk) {
        const std::int64_t begin = chunk.context.first_token, tokens = chunk.features.rows();
        table.forward(chunk.context, units, chunk.features, chunk.logits, chunk.lora_hidden);
        context.backend.cross_entropy_backward(chunk.logits, chunk.targets, loss.gradient_scale, loss.loss_scale,
                                               chunk.losses);
        table.backward(chunk.context, begin > 0 ? std::span<const UnitView>(added) : units, chunk.logits,
                       chunk.features, chunk.lora_hidden, chunk.lora_hidden_gradient,
                       feature_gradients.row_range(begin, tokens));
    });
}

void copy_last_tokens(const Context& context, const Tensor& x, const Tensor& last) {
    const BatchShape& shape = context.batch.shape;
    for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
        context.backend.copy(x.row_range((sequence + 1) * shape.length - 1, 1), last.row_range(sequence, 1));
    }
}

}  // namespace atl::model
