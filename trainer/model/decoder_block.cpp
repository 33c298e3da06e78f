#include <algorithm>
#include <string>

#include "trainer/model/blocks.h"
#include "trainer/model/layer_parts.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// Places of the parameters in a layer's unit. Query, key and value are neighbours and so are gate and up: each run is
// one matrix product.
enum : std::size_t { kInputNorm, kQuery, kKey, kValue, kOut, kPostNorm, kGate, kUp, kDown };
// The runs of them, in DecoderBlock::linears().
enum : std::size_t { kQkvRun, kOutRun, kGateUpRun, kDownRun };

std::vector<FusedLinear> runs_of(const FsdpUnit& unit) {
    return {{unit, kQuery, 3}, {unit, kOut, 1}, {unit, kGate, 2}, {unit, kDown, 1}};
}

}  // namespace

DecoderBlock::DecoderBlock(const ModelConfig& config, std::int64_t layer, std::size_t unit)
    : name_("layers." + std::to_string(layer)),
      units_{unit},
      linears_(runs_of(make_group(config, layer))),
      hidden_(config.hidden_size),
      feed_forward_(config.intermediate_size),
      heads_(config.num_attention_heads),
      kv_heads_(config.num_key_value_heads),
      head_channels_(config.head_dim),
      epsilon_(static_cast<float>(config.norm_eps)) {}

FsdpUnit DecoderBlock::make_group(const ModelConfig& config, std::int64_t layer) {
    const std::int64_t hidden = config.hidden_size, feed_forward = config.intermediate_size;
    const std::int64_t queries = config.num_attention_heads * config.head_dim;
    const std::int64_t keys = config.num_key_value_heads * config.head_dim;
    FsdpUnit unit{.name = "layers." + std::to_string(layer), .parameters = {}};
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns, Partition partition) {
        unit.add({.name = prefix + name,
                  .shape = {rows, columns},
                  .init_deviation = static_cast<float>(config.initializer_range),
                  .partition = partition});
    };
    const auto norm = [&](const char* name) {
        unit.add({.name = prefix + name, .shape = {hidden}, .init = Init::kOnes, .is_norm = true});
    };
    norm("input_layernorm.weight");
    matrix("self_attn.q_proj.weight", queries, hidden, Partition::kRows);
    matrix("self_attn.k_proj.weight", keys, hidden, Partition::kRows);
    matrix("self_attn.v_proj.weight", keys, hidden, Partition::kRows);
    matrix("self_attn.o_proj.weight", hidden, queries, Partition::kColumns);
    norm("post_attention_layernorm.weight");
    matrix("mlp.gate_proj.weight", feed_forward, hidden, Partition::kRows);
    matrix("mlp.up_proj.weight", feed_forward, hidden, Partition::kRows);
    matrix("mlp.down_proj.weight", hidden, feed_forward, Partition::kColumns);
    return unit;
}

kernels::AttentionShape DecoderBlock::attention_shape(const BatchShape& shape) const {
    return {shape.batch, shape.length, heads_, kv_heads_, head_channels_};
}

DecoderBlock::Saved DecoderBlock::allocate_saved(Arena& arena, const BatchShape& shape, Category category) const {
    const std::int64_t rows = shape.tokens();
    const auto cut = [&](std::initializer_list<std::int64_t> dims) {
        return arena.allocate(category, DType::kF32, dims);
    };
    return {
        .input_rstd = cut({rows}),
        .qkv = cut({rows, (heads_ + 2 * kv_heads_) * head_channels_}),
        .attention = cut({rows, heads_ * head_channels_}),
        .log_sum_exp = cut({shape.batch, heads_, shape.length}),
        .hidden = cut({rows, hidden_}),
        .hidden_rstd = cut({rows}),
        .gate_up = cut({rows, 2 * feed_forward_}),
        .lora_hidden = {linears_[kQkvRun].allocate_lora_hidden(arena, rows, category),
                        linears_[kOutRun].allocate_lora_hidden(arena, rows, category),
                        linears_[kGateUpRun].allocate_lora_hidden(arena, rows, category),
                        linears_[kDownRun].allocate_lora_hidden(arena, rows, category)},
    };
}

std::int64_t DecoderBlock::saved_bytes(const BatchShape& shape) const {
    Arena arena = Arena::measuring();
    allocate_saved(arena, shape, Category::kActivations);
    return arena.peak_bytes();
}

DecoderBlock::AttentionScratch DecoderBlock::allocate_attention(Arena& arena, std::int64_t rows, bool backward) const {
    const auto cut = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    AttentionScratch scratch;
    scratch.normed = cut(hidden_);
    if (!backward) return scratch;
    scratch.attention_gradient = cut(heads_ * head_channels_);
    scratch.qkv_gradient = cut((heads_ + 2 * kv_heads_) * head_channels_);
    scratch.qkv_lora_hidden_gradient = linears_[kQkvRun].allocate_lora_hidden(arena, rows, Category::kWorkspace);
    scratch.out_low_gradient = linears_[kOutRun].allocate_lora_hidden(arena, rows, Category::kWorkspace);
    return scratch;
}

DecoderBlock::FeedForwardScratch DecoderBlock::allocate_feed_forward(Arena& arena, std::int64_t rows) const {
    return {.normed = arena.allocate(Category::kWorkspace, DType::kF32, {rows, hidden_}),
            .activation = arena.allocate(Category::kWorkspace, DType::kF32, {rows, feed_forward_}),
            .gate_up_low_gradient = linears_[kGateUpRun].allocate_lora_hidden(arena, rows, Category::kWorkspace),
            .down_low_gradient = linears_[kDownRun].allocate_lora_hidden(arena, rows, Category::kWorkspace)};
}

std::int64_t DecoderBlock::workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const {
    Arena attention_forward = Arena::measuring(), attention_backward = Arena::measuring();
    Arena feed_forward = Arena::measuring();
    allocate_attention(attention_forward, shape.tokens(), false);
    allocate_attention(attention_backward, shape.tokens(), true);
    allocate_feed_forward(feed_forward, shape.tokens());
    const auto of_run = [&](std::size_t run) { return linears_[run].workspace_bytes(shape.tokens()); };
    const std::int64_t attention =
        std::max({backend.attention_workspace_bytes(attention_shape(shape)), of_run(kQkvRun), of_run(kOutRun)});
    const std::int64_t rest =
        feed_forward.peak_bytes() + std::max({of_run(kOutRun), of_run(kGateUpRun), of_run(kDownRun)});
    const std::int64_t forward =
        (saves ? 0 : saved_bytes(shape)) + std::max(attention_forward.peak_bytes() + attention, rest);
    const std::int64_t backward = std::max(attention_backward.peak_bytes() + attention, rest);
    return std::max(forward, backward);
}

std::int64_t DecoderBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                                 std::int64_t keys_max) const {
    return workspace_bytes(backend, shape, false) +
           backend.attention_cached_workspace_bytes(attention_shape(shape), keys_max);
}

void DecoderBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                           const Tensor& output, std::byte* saved, const Loss*) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    Arena kept = Arena::borrowing(saved, saved == nullptr ? 0 : saved_bytes(shape));
    const Saved activations = saved == nullptr ? allocate_saved(context.workspace, shape, Category::kWorkspace)
                                               : allocate_saved(kept, shape, Category::kActivations);
    attention_forward(context, units, input, activations, nullptr);
    feed_forward_forward(context, units, input, activations, output);
}

void DecoderBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                         const Tensor& output, LayerCache& cache) const {
    const Arena::Scope scope(context.workspace);
    const Saved activations = allocate_saved(context.workspace, context.batch.shape, Category::kWorkspace);
    attention_forward(context, units, input, activations, &cache);
    feed_forward_forward(context, units, input, activations, output);
    cache.past += context.batch.shape.length;
}

// saved.qkv and saved.attention from x; h is left to the second half.
void DecoderBlock::attention_forward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                                     LayerCache* cache) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const kernels::AttentionShape shape = attention_shape(batch.shape);
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), false);
    backend.rmsnorm_forward(input, units[0].weight(kInputNorm), epsilon_, scratch.normed, saved.input_rstd);
    linears_[kQkvRun].forward(context, units, scratch.normed, saved.qkv, saved.lora_hidden[kQkvRun]);
    backend.rope_forward(shape, batch.rope_table, batch.positions, saved.qkv);
    attend(context, shape, saved.qkv, cache, saved.attention, saved.log_sum_exp);
}

void DecoderBlock::feed_forward_forward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                                        const Tensor& output) const {
    kernels::Backend& backend = context.backend;
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, input.rows());
    linears_[kOutRun].forward(context, units, saved.attention, saved.hidden, saved.lora_hidden[kOutRun]);
    backend.add_rmsnorm_forward(input, saved.hidden, units[0].weight(kPostNorm), epsilon_, saved.hidden, scratch.normed,
                                saved.hidden_rstd);
    linears_[kGateUpRun].forward(context, units, scratch.normed, saved.gate_up, saved.lora_hidden[kGateUpRun]);
    backend.swiglu_forward(saved.gate_up, scratch.activation);
    linears_[kDownRun].forward(context, units, scratch.activation, output, saved.lora_hidden[kDownRun]);
    backend.add(saved.hidden, output, output);
}

void DecoderBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                            std::byte* saved, const Tensor& output_gradient, const Tensor& input_gradient,
                            const Loss*) const {
    Arena kept = Arena::borrowing(saved, saved_bytes(context.batch.shape));
    const Saved activations = allocate_saved(kept, context.batch.shape, Category::kActivations);
    // The gradient of h lives where that of x will.
    feed_forward_backward(context, units, activations, output_gradient, input_gradient);
    attention_backward(context, units, input, activations, input_gradient, input_gradient);
}

void DecoderBlock::feed_forward_backward(const Context& context, Groups units, const Saved& saved,
                                         const Tensor& output_gradient, const Tensor& hidden_gradient) const {
    kernels::Backend& backend = context.backend;
    const UnitView& layer = units[0];
    const FusedLinear &gate_up = linears_[kGateUpRun], &down = linears_[kDownRun];
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, output_gradient.rows());
    down.lora_hidden_gradient(context, units, output_gradient, scratch.down_low_gradient);
    down.input_gradient(context, units, output_gradient, scratch.down_low_gradient, scratch.activation);
    backend.swiglu_backward(saved.gate_up, scratch.activation, saved.gate_up, scratch.activation);
    down.weight_gradient(context, units, output_gradient, scratch.activation, saved.lora_hidden[kDownRun],
                         scratch.down_low_gradient);
    const Tensor& gate_up_gradient = saved.gate_up;
    backend.rmsnorm_apply(saved.hidden, layer.weight(kPostNorm), saved.hidden_rstd, scratch.normed);
    gate_up.lora_hidden_gradient(context, units, gate_up_gradient, scratch.gate_up_low_gradient);
    gate_up.weight_gradient(context, units, gate_up_gradient, scratch.normed, saved.lora_hidden[kGateUpRun],
                            scratch.gate_up_low_gradient);
    gate_up.input_gradient(context, units, gate_up_gradient, scratch.gate_up_low_gradient, scratch.normed);
    backend.rmsnorm_backward(saved.hidden, layer.weight(kPostNorm), saved.hidden_rstd, scratch.normed, output_gradient,
                             hidden_gradient, layer.gradient(kPostNorm), layer.accumulate());
}

void DecoderBlock::attention_backward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                                      const Tensor& hidden_gradient, const Tensor& input_gradient) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const UnitView& layer = units[0];
    const FusedLinear &qkv = linears_[kQkvRun], &out = linears_[kOutRun];
    const kernels::AttentionShape shape = attention_shape(batch.shape);
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), true);
    out.lora_hidden_gradient(context, units, hidden_gradient, scratch.out_low_gradient);
    out.input_gradient(context, units, hidden_gradient, scratch.out_low_gradient, scratch.attention_gradient);
    out.weight_gradient(context, units, hidden_gradient, saved.attention, saved.lora_hidden[kOutRun],
                        scratch.out_low_gradient);
    backend.attention_backward(shape, saved.qkv, batch.segment_starts, saved.attention, saved.log_sum_exp,
                               scratch.attention_gradient, scratch.qkv_gradient, context.workspace);
    backend.rope_backward(shape, batch.rope_table, batch.positions, scratch.qkv_gradient);
    backend.rmsnorm_apply(input, layer.weight(kInputNorm), saved.input_rstd, scratch.normed);
    qkv.lora_hidden_gradient(context, units, scratch.qkv_gradient, scratch.qkv_lora_hidden_gradient);
    qkv.weight_gradient(context, units, scratch.qkv_gradient, scratch.normed, saved.lora_hidden[kQkvRun],
                        scratch.qkv_lora_hidden_gradient);
    if (!context.input_gradient_needed) return;
    qkv.input_gradient(context, units, scratch.qkv_gradient, scratch.qkv_lora_hidden_gradient, scratch.normed);
    backend.rmsnorm_backward(input, layer.weight(kInputNorm), saved.input_rstd, scratch.normed, hidden_gradient,
                             input_gradient, layer.gradient(kInputNorm), layer.accumulate());
}

double DecoderBlock::forward_flops(const BatchShape& shape) const {
    const double rows = static_cast<double>(shape.tokens());
    const double query_width = static_cast<double>(heads_ * head_channels_);
    const double weights =
        static_cast<double>(hidden_) * (2.0 * query_width + 2.0 * static_cast<double>(kv_heads_ * head_channels_) +
                                        3.0 * static_cast<double>(feed_forward_));
    const double keys_seen = (static_cast<double>(shape.length) + 1.0) / 2.0;
    return 2.0 * rows * weights + 4.0 * rows * keys_seen * query_width;
}

}  // namespace atl::model
