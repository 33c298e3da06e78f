#include <algorithm>
#include <string>

#include "trainer/model/layer_parts.h"
#include "trainer/model/opt_blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// Places of the parameters in a layer's group. Query, key and value are neighbours, their weights and their biases.
enum OptPlace : std::size_t {
    kAttentionNorm,
    kAttentionNormBias,
    kQueryWeight,
    kKeyWeight,
    kValueWeight,
    kQueryBias,
    kKeyBias,
    kValueBias,
    kOutWeight,
    kOutBias,
    kFinalNorm,
    kFinalNormBias,
    kFirst,
    kFirstBias,
    kSecond,
    kSecondBias,
};

}  // namespace

OptBlock::OptBlock(const ModelConfig& config, std::int64_t layer, std::size_t group)
    : name_("layers." + std::to_string(layer)),
      groups_{group},
      hidden_(config.hidden_size),
      feed_forward_(config.intermediate_size),
      heads_(config.num_attention_heads),
      epsilon_(static_cast<float>(config.norm_eps)) {}

ParameterGroup OptBlock::make_group(const ModelConfig& config, std::int64_t layer) {
    const std::int64_t hidden = config.hidden_size, feed_forward = config.intermediate_size;
    const std::string name = "layers." + std::to_string(layer), prefix = "model.decoder." + name + ".";
    ParameterGroup group{.name = name, .parameters = {}};
    const auto matrix = [&](const std::string& linear, std::int64_t rows, std::int64_t columns, Partition partition) {
        group.add({.name = prefix + linear + ".weight",
                   .shape = {rows, columns},
                   .init_deviation = static_cast<float>(config.initializer_range),
                   .partition = partition});
    };
    const auto bias = [&](const std::string& of, std::int64_t channels, Partition partition) {
        group.add({.name = prefix + of + ".bias",
                   .shape = {channels},
                   .init = Init::kZeros,
                   .partition = partition,
                   .is_norm = true});
    };
    const auto norm = [&](const std::string& which) {
        group.add({.name = prefix + which + ".weight", .shape = {hidden}, .init = Init::kOnes, .is_norm = true});
        bias(which, hidden, Partition::kReplicated);
    };
    norm("self_attn_layer_norm");
    for (const char* linear : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
        matrix(linear, hidden, hidden, Partition::kRows);
    for (const char* linear : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
        bias(linear, hidden, Partition::kRows);
    matrix("self_attn.out_proj", hidden, hidden, Partition::kColumns);
    bias("self_attn.out_proj", hidden, Partition::kReplicated);
    norm("final_layer_norm");
    matrix("fc1", feed_forward, hidden, Partition::kRows);
    bias("fc1", feed_forward, Partition::kRows);
    matrix("fc2", hidden, feed_forward, Partition::kColumns);
    bias("fc2", hidden, Partition::kReplicated);
    return group;
}

kernels::AttentionShape OptBlock::attention_shape(const BatchShape& shape) const {
    return {shape.batch, shape.length, heads_, heads_, hidden_ / heads_};
}

OptBlock::Saved OptBlock::cut_saved(Arena& arena, const BatchShape& shape, Category category) const {
    const std::int64_t rows = shape.rows();
    const auto cut = [&](std::initializer_list<std::int64_t> dims) {
        return arena.allocate(category, DType::kF32, dims);
    };
    return {
        .input_moments = cut({rows, 2}),
        .qkv = cut({rows, 3 * hidden_}),
        .attention = cut({rows, hidden_}),
        .log_sum_exp = cut({shape.batch, heads_, shape.length}),
        .hidden = cut({rows, hidden_}),
        .hidden_moments = cut({rows, 2}),
        .activation = cut({rows, feed_forward_}),
    };
}

std::int64_t OptBlock::saved_bytes(const BatchShape& shape) const {
    Arena arena = Arena::measuring();
    cut_saved(arena, shape, Category::kActivations);
    return arena.peak_bytes();
}

OptBlock::AttentionScratch OptBlock::cut_attention(Arena& arena, std::int64_t rows, bool backward) const {
    const auto cut = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    AttentionScratch scratch{.normed = cut(hidden_), .attention_gradient = {}, .qkv_gradient = {}};
    if (!backward) return scratch;
    scratch.attention_gradient = cut(hidden_);
    scratch.qkv_gradient = cut(3 * hidden_);
    return scratch;
}

OptBlock::FeedForwardScratch OptBlock::cut_feed_forward(Arena& arena, std::int64_t rows, bool backward) const {
    FeedForwardScratch scratch{.normed = arena.allocate(Category::kWorkspace, DType::kF32, {rows, hidden_}),
                               .activation_gradient = {}};
    if (backward)
        scratch.activation_gradient = arena.allocate(Category::kWorkspace, DType::kF32, {rows, feed_forward_});
    return scratch;
}

std::int64_t OptBlock::workspace_bytes(const kernels::Backend& backend, const BatchShape& shape) const {
    std::int64_t attention[2], feed_forward[2];
    for (const bool backward : {false, true}) {
        Arena first = Arena::measuring(), second = Arena::measuring();
        cut_attention(first, shape.rows(), backward);
        cut_feed_forward(second, shape.rows(), backward);
        attention[backward] = first.peak_bytes() + backend.attention_workspace_bytes(attention_shape(shape));
        feed_forward[backward] = second.peak_bytes();
    }
    return std::max(saved_bytes(shape) + std::max(attention[0], feed_forward[0]),
                    std::max(attention[1], feed_forward[1]));
}

std::int64_t OptBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                             std::int64_t keys_max) const {
    return workspace_bytes(backend, shape) + backend.attention_cached_workspace_bytes(attention_shape(shape), keys_max);
}

void OptBlock::forward(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                       const Tensor& output, std::byte* saved, const Loss*) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    Arena kept = Arena::borrowing(saved, saved == nullptr ? 0 : saved_bytes(shape));
    const Saved activations = saved == nullptr ? cut_saved(context.workspace, shape, Category::kWorkspace)
                                               : cut_saved(kept, shape, Category::kActivations);
    attention_forward(context, groups[0], input, activations, nullptr);
    feed_forward_forward(context, groups[0], input, activations, output);
}

void OptBlock::infer(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                     const Tensor& output, LayerCache& cache) const {
    const Arena::Scope scope(context.workspace);
    const Saved activations = cut_saved(context.workspace, context.batch.shape, Category::kWorkspace);
    attention_forward(context, groups[0], input, activations, &cache);
    feed_forward_forward(context, groups[0], input, activations, output);
    cache.past += context.batch.shape.length;
}

// saved.qkv and saved.attention from x; h is left to the second half.
void OptBlock::attention_forward(const Context& context, const GroupView& group, const Tensor& input,
                                 const Saved& saved, LayerCache* cache) const {
    kernels::Backend& backend = context.backend;
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = cut_attention(context.workspace, input.rows(), false);
    backend.layernorm_forward(input, group.weight(kAttentionNorm), group.weight(kAttentionNormBias), epsilon_,
                              scratch.normed, saved.input_moments);
    backend.matmul(scratch.normed, false, group.stacked_weight(kQueryWeight, 3), true, saved.qkv, false);
    backend.add_bias(saved.qkv, group.stacked_weight(kQueryBias, 3), {}, saved.qkv);
    attend(context, attention_shape(context.batch.shape), saved.qkv, cache, saved.attention, saved.log_sum_exp);
}

void OptBlock::feed_forward_forward(const Context& context, const GroupView& group, const Tensor& input,
                                    const Saved& saved, const Tensor& output) const {
    kernels::Backend& backend = context.backend;
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = cut_feed_forward(context.workspace, input.rows(), false);
    backend.matmul(saved.attention, false, group.weight(kOutWeight), true, saved.hidden, false);
    complete_sum(context, saved.hidden);
    backend.add_bias(saved.hidden, group.weight(kOutBias), input, saved.hidden);
    backend.layernorm_forward(saved.hidden, group.weight(kFinalNorm), group.weight(kFinalNormBias), epsilon_,
                              scratch.normed, saved.hidden_moments);
    backend.matmul(scratch.normed, false, group.weight(kFirst), true, saved.activation, false);
    backend.bias_relu(saved.activation, group.weight(kFirstBias));
    backend.matmul(saved.activation, false, group.weight(kSecond), true, output, false);
    complete_sum(context, output);
    backend.add_bias(output, group.weight(kSecondBias), saved.hidden, output);
}

void OptBlock::backward(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                        std::byte* saved, const Tensor& output_gradient, const Tensor& input_gradient,
                        const Loss*) const {
    Arena kept = Arena::borrowing(saved, saved_bytes(context.batch.shape));
    const Saved activations = cut_saved(kept, context.batch.shape, Category::kActivations);
    // The gradient of h lives where that of x will.
    feed_forward_backward(context, groups[0], activations, output_gradient, input_gradient);
    attention_backward(context, groups[0], input, activations, input_gradient, input_gradient);
}

void OptBlock::feed_forward_backward(const Context& context, const GroupView& group, const Saved& saved,
                                     const Tensor& output_gradient, const Tensor& hidden_gradient) const {
    kernels::Backend& backend = context.backend;
    const bool accumulate = group.accumulate();
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = cut_feed_forward(context.workspace, output_gradient.rows(), true);
    const Tensor& gradient = scratch.activation_gradient;
    backend.matmul(output_gradient, false, group.weight(kSecond), false, gradient, false);
    backend.matmul(output_gradient, true, saved.activation, false, group.gradient(kSecond), accumulate);
    backend.sum_rows(output_gradient, group.gradient(kSecondBias), accumulate);
    backend.relu_backward(saved.activation, gradient);
    backend.sum_rows(gradient, group.gradient(kFirstBias), accumulate);
    backend.layernorm_apply(saved.hidden, group.weight(kFinalNorm), group.weight(kFinalNormBias), saved.hidden_moments,
                            scratch.normed);
    backend.matmul(gradient, true, scratch.normed, false, group.gradient(kFirst), accumulate);
    backend.matmul(gradient, false, group.weight(kFirst), false, scratch.normed, false);
    complete_sum(context, scratch.normed);
    backend.layernorm_backward(saved.hidden, group.weight(kFinalNorm), saved.hidden_moments, scratch.normed,
                               output_gradient, hidden_gradient, group.gradient(kFinalNorm),
                               group.gradient(kFinalNormBias), accumulate);
}

void OptBlock::attention_backward(const Context& context, const GroupView& group, const Tensor& input,
                                  const Saved& saved, const Tensor& hidden_gradient,
                                  const Tensor& input_gradient) const {
    kernels::Backend& backend = context.backend;
    const bool accumulate = group.accumulate();
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = cut_attention(context.workspace, input.rows(), true);
    backend.matmul(hidden_gradient, false, group.weight(kOutWeight), false, scratch.attention_gradient, false);
    backend.matmul(hidden_gradient, true, saved.attention, false, group.gradient(kOutWeight), accumulate);
    backend.sum_rows(hidden_gradient, group.gradient(kOutBias), accumulate);
    backend.attention_backward(attention_shape(context.batch.shape), saved.qkv, context.batch.segment_starts,
                               saved.attention, saved.log_sum_exp, scratch.attention_gradient, scratch.qkv_gradient,
                               context.workspace);
    backend.sum_rows(scratch.qkv_gradient, group.stacked_gradient(kQueryBias, 3), accumulate);
    backend.layernorm_apply(input, group.weight(kAttentionNorm), group.weight(kAttentionNormBias), saved.input_moments,
                            scratch.normed);
    backend.matmul(scratch.qkv_gradient, true, scratch.normed, false, group.stacked_gradient(kQueryWeight, 3),
                   accumulate);
    backend.matmul(scratch.qkv_gradient, false, group.stacked_weight(kQueryWeight, 3), false, scratch.normed, false);
    complete_sum(context, scratch.normed);
    backend.layernorm_backward(input, group.weight(kAttentionNorm), saved.input_moments, scratch.normed,
                               hidden_gradient, input_gradient, group.gradient(kAttentionNorm),
                               group.gradient(kAttentionNormBias), accumulate);
}

double OptBlock::forward_flops(const BatchShape& shape) const {
    const double rows = static_cast<double>(shape.rows()), hidden = static_cast<double>(hidden_);
    const double weights = hidden * (4.0 * hidden + 2.0 * static_cast<double>(feed_forward_));
    const double keys_seen = (static_cast<double>(shape.length) + 1.0) / 2.0;
    return 2.0 * rows * weights + 4.0 * rows * keys_seen * hidden;
}

}  // namespace atl::model
