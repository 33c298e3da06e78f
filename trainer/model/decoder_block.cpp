#include <algorithm>
#include <string>

#include "trainer/model/blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;

std::string layer_prefix(const ModelConfig& config, std::int64_t layer) {
    return std::string(config.architecture.prefix) + "layers." + std::to_string(layer) + ".";
}

FusedLinear make_up(const ModelConfig& config, FsdpUnit& unit, const std::string& prefix, const LayerWidths& widths) {
    const Architecture& family = config.architecture;
    const FusedLinear::Matrix gate{family.gate, widths.feed_forward}, up{family.up, widths.feed_forward};
    if (family.activation == Activation::kSwiglu)
        return {config, unit, prefix, {gate, up}, widths.hidden, Partition::kRows, family.feed_forward_bias};
    return {config, unit, prefix, {up}, widths.hidden, Partition::kRows, family.feed_forward_bias};
}

// A residual gradient as products take it: itself, or rounded into `scratch`, which is there where the formats differ.
Tensor in_activations(kernels::Backend& backend, const Tensor& gradient, const Tensor& scratch) {
    if (scratch.empty()) return gradient;
    backend.convert(gradient, scratch);
    return scratch;
}

std::optional<HeadNorms> make_head_norms(const ModelConfig& config, FsdpUnit& unit, const std::string& prefix) {
    if (!config.architecture.head_norms) return std::nullopt;
    return HeadNorms(config, unit, prefix);
}

}  // namespace

DecoderBlock::DecoderBlock(const ModelConfig& config, std::int64_t layer, std::vector<FsdpUnit>& units)
    : Block("layers." + std::to_string(layer), units),
      widths_{.hidden = config.hidden_size,
              .heads = config.num_attention_heads,
              .kv_heads = config.num_key_value_heads,
              .head_channels = config.head_dim,
              .feed_forward = config.intermediate_size},
      rotates_(config.architecture.positions == Positions::kRope),
      is_gated_(config.architecture.activation == Activation::kSwiglu),
      attention_norm_(config, units.back(), layer_prefix(config, layer), config.architecture.attention_norm),
      qkv_(config, units.back(), layer_prefix(config, layer),
           {{"self_attn.q_proj", widths_.queries()},
            {"self_attn.k_proj", widths_.keys()},
            {"self_attn.v_proj", widths_.keys()}},
           widths_.hidden, Partition::kRows, config.architecture.qkv_bias),
      head_norms_(make_head_norms(config, units.back(), layer_prefix(config, layer))),
      out_(config, units.back(), layer_prefix(config, layer), {{config.architecture.out, widths_.hidden}},
           widths_.queries(), Partition::kColumns, config.architecture.out_bias),
      feed_forward_norm_(config, units.back(), layer_prefix(config, layer), config.architecture.feed_forward_norm),
      up_(make_up(config, units.back(), layer_prefix(config, layer), widths_)),
      down_(config, units.back(), layer_prefix(config, layer), {{config.architecture.down, widths_.hidden}},
            widths_.feed_forward, Partition::kColumns, config.architecture.feed_forward_bias) {
    units.back().is_layer = true;
}

kernels::AttentionShape DecoderBlock::attention_shape(const BatchShape& shape) const {
    return {shape.batch, shape.length, widths_.heads, widths_.kv_heads, widths_.head_channels, formats_.activations};
}

DecoderBlock::Saved DecoderBlock::allocate_saved(Arena& kept, Arena& rest, const kernels::Backend& backend,
                                                 const BatchShape& shape, Keep keep) const {
    constexpr Category kCategory = Category::kActivations;
    const std::int64_t tokens = shape.tokens();
    Arena& of_up = keep == Keep::kAll ? kept : rest;
    Arena& of_attention = keep == Keep::kInput ? rest : kept;
    Arena& others = keep == Keep::kAll || keep == Keep::kWithoutFeedForward ? kept : rest;
    const auto allocate = [&](Arena& arena, std::int64_t columns) {
        return arena.allocate(kCategory, formats_.activations, {tokens, columns});
    };
    const auto allocate_lora_hidden = [&](Arena& arena, const FusedLinear& linear) {
        return linear.allocate_lora_hidden(arena, formats_.activations, tokens, kCategory);
    };
    return {
        .input_statistics = attention_norm_.allocate_statistics(others, tokens, kCategory),
        .qkv = allocate(others, widths_.qkv()),
        .attention = allocate(of_attention, widths_.queries()),
        .attention_kept = of_attention.allocate(kCategory, tensor::DType::kU8,
                                                {backend.attention_kept_bytes(attention_shape(shape))}),
        .hidden = others.allocate(kCategory, formats_.residual, {tokens, widths_.hidden}),
        .hidden_statistics = feed_forward_norm_.allocate_statistics(others, tokens, kCategory),
        .up = allocate(of_up, (is_gated_ ? 2 : 1) * widths_.feed_forward),
        .qkv_lora_hidden = allocate_lora_hidden(others, qkv_),
        .out_lora_hidden = allocate_lora_hidden(others, out_),
        .up_lora_hidden = allocate_lora_hidden(of_up, up_),
        .down_lora_hidden = allocate_lora_hidden(others, down_),
    };
}

SavedBytes DecoderBlock::saved_bytes(const kernels::Backend& backend, const BatchShape& shape, Keep keep) const {
    Arena kept = Arena::measuring(), rest = Arena::measuring();
    allocate_saved(kept, rest, backend, shape, keep);
    return {kept.peak_bytes(), rest.peak_bytes()};
}

DecoderBlock::Saved DecoderBlock::find_saved(const SavedMemory& saved, const Context& context) const {
    const BatchShape& shape = context.batch.shape;
    const SavedBytes bytes = saved_bytes(context.backend, shape, saved.keep);
    Arena kept = Arena::borrowing(saved.kept, bytes.kept), rest = Arena::borrowing(saved.rest, bytes.rest);
    return allocate_saved(kept, rest, context.backend, shape, saved.keep);
}

DecoderBlock::Saved DecoderBlock::allocate_unsaved(const Context& context) const {
    return allocate_saved(context.workspace, context.workspace, context.backend, context.batch.shape, Keep::kAll);
}

DecoderBlock::AttentionScratch DecoderBlock::allocate_attention(Arena& arena, std::int64_t tokens,
                                                                bool backward) const {
    const auto allocate = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, formats_.activations, {tokens, columns});
    };
    AttentionScratch scratch;
    scratch.normed = allocate(widths_.hidden);
    if (head_norms_) {
        scratch.normed_heads = allocate(widths_.qkv());
        scratch.head_rstd =
            arena.allocate(Category::kWorkspace, kernels::kStatistics, {tokens, widths_.heads + widths_.kv_heads});
    }
    if (!backward) return scratch;
    if (formats_.residual != formats_.activations) scratch.hidden_gradient = allocate(widths_.hidden);
    scratch.attention_gradient = allocate(widths_.queries());
    scratch.qkv_gradient = allocate(widths_.qkv());
    scratch.qkv_lora_hidden_gradient =
        qkv_.allocate_lora_hidden(arena, formats_.activations, tokens, Category::kWorkspace);
    scratch.out_lora_hidden_gradient =
        out_.allocate_lora_hidden(arena, formats_.activations, tokens, Category::kWorkspace);
    return scratch;
}

DecoderBlock::FeedForwardScratch DecoderBlock::allocate_feed_forward(Arena& arena, std::int64_t tokens,
                                                                     bool backward) const {
    const auto allocate = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, formats_.activations, {tokens, columns});
    };
    FeedForwardScratch scratch;
    scratch.normed = allocate(widths_.hidden);
    if (is_gated_ || backward) scratch.activation = allocate(widths_.feed_forward);
    if (!backward) return scratch;
    if (formats_.residual != formats_.activations) scratch.output_gradient = allocate(widths_.hidden);
    scratch.up_lora_hidden_gradient =
        up_.allocate_lora_hidden(arena, formats_.activations, tokens, Category::kWorkspace);
    scratch.down_lora_hidden_gradient =
        down_.allocate_lora_hidden(arena, formats_.activations, tokens, Category::kWorkspace);
    return scratch;
}

std::int64_t DecoderBlock::workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const {
    return scratch_bytes(backend, shape, saves, backend.attention_workspace_bytes(attention_shape(shape)));
}

std::int64_t DecoderBlock::scratch_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves,
                                         std::int64_t attention_bytes) const {
    const std::int64_t tokens = shape.tokens();
    const auto measure = [&](bool backward) {
        Arena attention = Arena::measuring(), feed_forward = Arena::measuring();
        allocate_attention(attention, tokens, backward);
        allocate_feed_forward(feed_forward, tokens, backward);
        return std::max(
            attention.peak_bytes() +
                std::max({attention_bytes, qkv_.workspace_bytes(backend, formats_.activations, tokens),
                          out_.workspace_bytes(backend, formats_.activations, tokens)}),
            feed_forward.peak_bytes() + std::max({out_.workspace_bytes(backend, formats_.activations, tokens),
                                                  up_.workspace_bytes(backend, formats_.activations, tokens),
                                                  down_.workspace_bytes(backend, formats_.activations, tokens)}));
    };
    return std::max((saves ? 0 : saved_bytes(backend, shape, Keep::kAll).kept) + measure(false), measure(true));
}

std::int64_t DecoderBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                                 std::int64_t keys_max) const {
    return scratch_bytes(backend, shape, false,
                         backend.attention_cached_workspace_bytes(attention_shape(shape), keys_max));
}

void DecoderBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                           const Tensor& output, const SavedMemory& saved, const Loss*) const {
    const Arena::Scope scope(context.workspace);
    const Saved activations = saved.empty() ? allocate_unsaved(context) : find_saved(saved, context);
    attention_forward(context, units, input, activations, nullptr);
    feed_forward_forward(context, units, input, activations, output);
}

// Nobody reads the output, nor the activation, unless an adapter has it for input.
void DecoderBlock::recompute(const Context& context, std::span<const UnitView> units, const Tensor& input,
                             const SavedMemory& saved) const {
    const Saved activations = find_saved(saved, context);
    if (saved.keep == Keep::kInput) attention_forward(context, units, input, activations, nullptr);
    if (saved.keep == Keep::kAttention) {
        const Arena::Scope scope(context.workspace);
        const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), false);
        qkv_forward(context, units, input, activations, scratch);
        if (!head_norms_) attention_input(context, units, activations, scratch, false);
    }
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, input.rows(), false);
    if (saved.keep == Keep::kWithoutFeedForward) {
        feed_forward_norm_.apply(context.backend, units[0], activations.hidden, activations.hidden_statistics,
                                 scratch.normed);
        return up_forward(context, units, activations, scratch);
    }
    hidden_forward(context, units, input, activations, scratch);
    up_forward(context, units, activations, scratch);
    if (activations.down_lora_hidden.empty()) return;
    if (is_gated_) context.backend.swiglu_forward(activations.up, scratch.activation);
    down_.compute_lora_hidden(context, units, is_gated_ ? scratch.activation : activations.up,
                              activations.down_lora_hidden);
}

void DecoderBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                         const Tensor& output, LayerCache& cache) const {
    const Arena::Scope scope(context.workspace);
    const Saved activations = allocate_unsaved(context);
    attention_forward(context, units, input, activations, &cache);
    feed_forward_forward(context, units, input, activations, output);
    cache.past += context.batch.shape.length;
}

Tensor DecoderBlock::attention_input(const Context& context, std::span<const UnitView> units, const Saved& saved,
                                     const AttentionScratch& scratch, bool backward) const {
    const Batch& batch = context.batch;
    const kernels::AttentionShape shape = attention_shape(batch.shape);
    const Tensor qkv = head_norms_ ? scratch.normed_heads : saved.qkv;
    if (head_norms_) {
        head_norms_->forward(context.backend, units[0], shape, saved.qkv, qkv, scratch.head_rstd);
    } else if (backward) {
        return qkv;
    }
    if (rotates_) context.backend.rope(shape, batch.rope_table, batch.positions, qkv, false);
    return qkv;
}

void DecoderBlock::qkv_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                               const Saved& saved, const AttentionScratch& scratch) const {
    attention_norm_.forward(context.backend, units[0], input, scratch.normed, saved.input_statistics);
    qkv_.forward_and_add(context, units, scratch.normed, {}, saved.qkv, saved.qkv_lora_hidden);
}

// saved.qkv and saved.attention from x; h is left to the second half. With a cache attention is over the tokens before
// as well.
void DecoderBlock::attention_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                                     const Saved& saved, LayerCache* cache) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const kernels::AttentionShape shape = attention_shape(batch.shape);
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), false);
    qkv_forward(context, units, input, saved, scratch);
    const Tensor qkv = attention_input(context, units, saved, scratch, false);
    if (cache == nullptr) {
        backend.attention_forward(shape, qkv, batch.documents, saved.attention, saved.attention_kept,
                                  context.workspace);
    } else {
        backend.attention_cached(shape, qkv, cache->past, cache->keys, cache->values, saved.attention,
                                 context.workspace);
    }
}

void DecoderBlock::hidden_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                                  const Saved& saved, const FeedForwardScratch& scratch) const {
    out_.forward(context, units, saved.attention, saved.hidden, saved.out_lora_hidden);
    feed_forward_norm_.add_forward(context.backend, units[0], out_.bias(units), input, saved.hidden, scratch.normed,
                                   saved.hidden_statistics);
}

void DecoderBlock::up_forward(const Context& context, std::span<const UnitView> units, const Saved& saved,
                              const FeedForwardScratch& scratch) const {
    if (is_gated_) return up_.forward_and_add(context, units, scratch.normed, {}, saved.up, saved.up_lora_hidden);
    up_.forward(context, units, scratch.normed, saved.up, saved.up_lora_hidden);
    context.backend.bias_relu(saved.up, up_.bias(units));
}

void DecoderBlock::feed_forward_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                                        const Saved& saved, const Tensor& output) const {
    kernels::Backend& backend = context.backend;
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, input.rows(), false);
    hidden_forward(context, units, input, saved, scratch);
    up_forward(context, units, saved, scratch);
    if (is_gated_) backend.swiglu_forward(saved.up, scratch.activation);
    down_.forward_and_add(context, units, is_gated_ ? scratch.activation : saved.up, saved.hidden, output,
                          saved.down_lora_hidden);
}

void DecoderBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                            const SavedMemory& saved, const Tensor& output_gradient, const Tensor& input_gradient,
                            const Loss*) const {
    const Saved activations = find_saved(saved, context);
    // The gradient of h lives where that of x will.
    feed_forward_backward(context, units, activations, output_gradient, input_gradient);
    attention_backward(context, units, input, activations, input_gradient, input_gradient);
}

void DecoderBlock::feed_forward_backward(const Context& context, std::span<const UnitView> units, const Saved& saved,
                                         const Tensor& residual_gradient, const Tensor& hidden_gradient) const {
    kernels::Backend& backend = context.backend;
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, residual_gradient.rows(), true);
    const Tensor output_gradient = in_activations(backend, residual_gradient, scratch.output_gradient);
    down_.compute_lora_hidden_gradient(context, units, output_gradient, scratch.down_lora_hidden_gradient);
    down_.compute_input_gradient(context, units, output_gradient, scratch.down_lora_hidden_gradient,
                                 scratch.activation);
    // SwiGLU's gradient takes the place of gate and up, and its result that of the result's gradient.
    const Tensor& activation = is_gated_ ? scratch.activation : saved.up;
    const Tensor& up_gradient = is_gated_ ? saved.up : scratch.activation;
    if (is_gated_) {
        backend.swiglu_backward(saved.up, scratch.activation, up_gradient, activation);
    } else {
        backend.relu_backward(activation, up_gradient);
    }
    down_.compute_weight_gradient(context, units, output_gradient, activation, saved.down_lora_hidden,
                                  scratch.down_lora_hidden_gradient);
    feed_forward_norm_.apply(backend, units[0], saved.hidden, saved.hidden_statistics, scratch.normed);
    up_.backward(context, units, up_gradient, scratch.normed, saved.up_lora_hidden, scratch.up_lora_hidden_gradient,
                 scratch.normed);
    feed_forward_norm_.backward(backend, units[0], saved.hidden, saved.hidden_statistics, scratch.normed,
                                residual_gradient, hidden_gradient);
}

void DecoderBlock::attention_backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                                      const Saved& saved, const Tensor& hidden_gradient,
                                      const Tensor& input_gradient) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const kernels::AttentionShape shape = attention_shape(batch.shape);
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), true);
    const Tensor out_gradient = in_activations(backend, hidden_gradient, scratch.hidden_gradient);
    out_.backward(context, units, out_gradient, saved.attention, saved.out_lora_hidden,
                  scratch.out_lora_hidden_gradient, scratch.attention_gradient);
    const Tensor qkv = attention_input(context, units, saved, scratch, true);
    backend.attention_backward(shape, qkv, batch.documents, saved.attention, saved.attention_kept,
                               scratch.attention_gradient,
                               rotates_ ? kernels::Rotation{batch.rope_table, batch.positions} : kernels::Rotation(),
                               scratch.qkv_gradient, context.workspace);
    if (head_norms_)
        head_norms_->backward(backend, units[0], shape, saved.qkv, scratch.head_rstd, scratch.qkv_gradient);
    attention_norm_.apply(backend, units[0], input, saved.input_statistics, scratch.normed);
    qkv_.backward(context, units, scratch.qkv_gradient, scratch.normed, saved.qkv_lora_hidden,
                  scratch.qkv_lora_hidden_gradient, context.input_gradient_needed ? scratch.normed : Tensor());
    if (!context.input_gradient_needed) return;
    attention_norm_.backward(backend, units[0], input, saved.input_statistics, scratch.normed, hidden_gradient,
                             input_gradient);
}

double DecoderBlock::forward_flops(const BatchShape& shape) const {
    const std::int64_t outputs =
        2 * widths_.queries() + 2 * widths_.keys() + (is_gated_ ? 3 : 2) * widths_.feed_forward;
    const double tokens = static_cast<double>(shape.tokens());
    const double weights = static_cast<double>(widths_.hidden) * static_cast<double>(outputs);
    return 2.0 * tokens * weights + attention_flops(shape);
}

double DecoderBlock::attention_flops(const BatchShape& shape) const {
    const double keys_seen = (static_cast<double>(shape.length) + 1.0) / 2.0;
    return 4.0 * static_cast<double>(shape.tokens()) * keys_seen * static_cast<double>(widths_.queries());
}

double DecoderBlock::recompute_flops(const BatchShape& shape, Keep keep) const {
    const double matrix = 2.0 * static_cast<double>(shape.tokens()) * static_cast<double>(widths_.hidden) *
                          static_cast<double>(widths_.feed_forward);
    switch (keep) {
        case Keep::kAll:
            return 0;
        case Keep::kWithoutFeedForward:
            return (is_gated_ ? 2 : 1) * matrix;
        case Keep::kAttention:
            return forward_flops(shape) - matrix - attention_flops(shape);
        case Keep::kInput:
            return forward_flops(shape) - matrix;
    }
    return 0;
}

}  // namespace atl::model
