#include <algorithm>
#include <string>

#include "trainer/model/layer_parts.h"
#include "trainer/model/opt_blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// Places of the parameters in a layer's unit. Query, key and value are neighbours, their weights and their biases.
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
// The runs of matrices that share their input, in OptBlock::linears().
enum OptRun : std::size_t { kQkv, kOut, kFirstRun, kSecondRun };

std::vector<FusedLinear> opt_runs(const FsdpUnit& unit) {
    return {{unit, kQueryWeight, 3}, {unit, kOutWeight, 1}, {unit, kFirst, 1}, {unit, kSecond, 1}};
}

// A bias's gradient, unless it is frozen.
void bias_gradient(const Context& context, const UnitView& unit, const Tensor& gradient, std::size_t first,
                   std::size_t count = 1) {
    if (unit.trains()) context.backend.sum_rows(gradient, unit.stacked_gradient(first, count), unit.accumulate());
}

}  // namespace

OptBlock::OptBlock(const ModelConfig& config, std::int64_t layer, std::size_t unit)
    : name_("layers." + std::to_string(layer)),
      units_{unit},
      linears_(opt_runs(make_group(config, layer))),
      hidden_(config.hidden_size),
      feed_forward_(config.intermediate_size),
      heads_(config.num_attention_heads),
      epsilon_(static_cast<float>(config.norm_eps)) {}

FsdpUnit OptBlock::make_group(const ModelConfig& config, std::int64_t layer) {
    const std::int64_t hidden = config.hidden_size, feed_forward = config.intermediate_size;
    const std::string name = "layers." + std::to_string(layer), prefix = "model.decoder." + name + ".";
    FsdpUnit unit{.name = name, .parameters = {}};
    const auto matrix = [&](const std::string& linear, std::int64_t rows, std::int64_t columns, Partition partition) {
        unit.add({.name = prefix + linear + ".weight",
                  .shape = {rows, columns},
                  .init_deviation = static_cast<float>(config.initializer_range),
                  .partition = partition});
    };
    const auto bias = [&](const std::string& of, std::int64_t channels, Partition partition) {
        unit.add({.name = prefix + of + ".bias",
                  .shape = {channels},
                  .init = Init::kZeros,
                  .partition = partition,
                  .is_norm = true});
    };
    const auto norm = [&](const std::string& which) {
        unit.add({.name = prefix + which + ".weight", .shape = {hidden}, .init = Init::kOnes, .is_norm = true});
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
    return unit;
}

kernels::AttentionShape OptBlock::attention_shape(const BatchShape& shape) const {
    return {shape.batch, shape.length, heads_, heads_, hidden_ / heads_};
}

OptBlock::Saved OptBlock::allocate_saved(Arena& arena, const BatchShape& shape, Category category) const {
    const std::int64_t rows = shape.tokens();
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
        .lora_hidden = {linears_[kQkv].allocate_lora_hidden(arena, rows, category),
                        linears_[kOut].allocate_lora_hidden(arena, rows, category),
                        linears_[kFirstRun].allocate_lora_hidden(arena, rows, category),
                        linears_[kSecondRun].allocate_lora_hidden(arena, rows, category)},
    };
}

std::int64_t OptBlock::saved_bytes(const BatchShape& shape) const {
    Arena arena = Arena::measuring();
    allocate_saved(arena, shape, Category::kActivations);
    return arena.peak_bytes();
}

OptBlock::AttentionScratch OptBlock::allocate_attention(Arena& arena, std::int64_t rows, bool backward) const {
    const auto cut = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    AttentionScratch scratch;
    scratch.normed = cut(hidden_);
    if (!backward) return scratch;
    scratch.attention_gradient = cut(hidden_);
    scratch.qkv_gradient = cut(3 * hidden_);
    scratch.qkv_lora_hidden_gradient = linears_[kQkv].allocate_lora_hidden(arena, rows, Category::kWorkspace);
    scratch.out_low_gradient = linears_[kOut].allocate_lora_hidden(arena, rows, Category::kWorkspace);
    return scratch;
}

OptBlock::FeedForwardScratch OptBlock::allocate_feed_forward(Arena& arena, std::int64_t rows, bool backward) const {
    FeedForwardScratch scratch;
    scratch.normed = arena.allocate(Category::kWorkspace, DType::kF32, {rows, hidden_});
    if (!backward) return scratch;
    scratch.activation_gradient = arena.allocate(Category::kWorkspace, DType::kF32, {rows, feed_forward_});
    scratch.first_low_gradient = linears_[kFirstRun].allocate_lora_hidden(arena, rows, Category::kWorkspace);
    scratch.second_low_gradient = linears_[kSecondRun].allocate_lora_hidden(arena, rows, Category::kWorkspace);
    return scratch;
}

std::int64_t OptBlock::workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const {
    std::int64_t attention[2], feed_forward[2];
    for (const bool backward : {false, true}) {
        Arena first = Arena::measuring(), second = Arena::measuring();
        allocate_attention(first, shape.tokens(), backward);
        allocate_feed_forward(second, shape.tokens(), backward);
        const auto of_run = [&](std::size_t run) { return linears_[run].workspace_bytes(shape.tokens()); };
        attention[backward] = first.peak_bytes() + std::max({backend.attention_workspace_bytes(attention_shape(shape)),
                                                             of_run(kQkv), of_run(kOut)});
        feed_forward[backward] = second.peak_bytes() + std::max({of_run(kOut), of_run(kFirstRun), of_run(kSecondRun)});
    }
    return std::max((saves ? 0 : saved_bytes(shape)) + std::max(attention[0], feed_forward[0]),
                    std::max(attention[1], feed_forward[1]));
}

std::int64_t OptBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                             std::int64_t keys_max) const {
    return workspace_bytes(backend, shape, false) +
           backend.attention_cached_workspace_bytes(attention_shape(shape), keys_max);
}

void OptBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                       const Tensor& output, std::byte* saved, const Loss*) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    Arena kept = Arena::borrowing(saved, saved == nullptr ? 0 : saved_bytes(shape));
    const Saved activations = saved == nullptr ? allocate_saved(context.workspace, shape, Category::kWorkspace)
                                               : allocate_saved(kept, shape, Category::kActivations);
    attention_forward(context, units, input, activations, nullptr);
    feed_forward_forward(context, units, input, activations, output);
}

void OptBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                     LayerCache& cache) const {
    const Arena::Scope scope(context.workspace);
    const Saved activations = allocate_saved(context.workspace, context.batch.shape, Category::kWorkspace);
    attention_forward(context, units, input, activations, &cache);
    feed_forward_forward(context, units, input, activations, output);
    cache.past += context.batch.shape.length;
}

// saved.qkv and saved.attention from x; h is left to the second half.
void OptBlock::attention_forward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                                 LayerCache* cache) const {
    kernels::Backend& backend = context.backend;
    const UnitView& unit = units[0];
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), false);
    backend.layernorm_forward(input, unit.weight(kAttentionNorm), unit.weight(kAttentionNormBias), epsilon_,
                              scratch.normed, saved.input_moments);
    linears_[kQkv].forward(context, units, scratch.normed, saved.qkv, saved.lora_hidden[kQkv]);
    backend.add_bias(saved.qkv, unit.stacked_weight(kQueryBias, 3), {}, saved.qkv);
    attend(context, attention_shape(context.batch.shape), saved.qkv, cache, saved.attention, saved.log_sum_exp);
}

void OptBlock::feed_forward_forward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                                    const Tensor& output) const {
    kernels::Backend& backend = context.backend;
    const UnitView& unit = units[0];
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, input.rows(), false);
    linears_[kOut].forward(context, units, saved.attention, saved.hidden, saved.lora_hidden[kOut]);
    backend.add_bias(saved.hidden, unit.weight(kOutBias), input, saved.hidden);
    backend.layernorm_forward(saved.hidden, unit.weight(kFinalNorm), unit.weight(kFinalNormBias), epsilon_,
                              scratch.normed, saved.hidden_moments);
    linears_[kFirstRun].forward(context, units, scratch.normed, saved.activation, saved.lora_hidden[kFirstRun]);
    backend.bias_relu(saved.activation, unit.weight(kFirstBias));
    linears_[kSecondRun].forward(context, units, saved.activation, output, saved.lora_hidden[kSecondRun]);
    backend.add_bias(output, unit.weight(kSecondBias), saved.hidden, output);
}

void OptBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte* saved,
                        const Tensor& output_gradient, const Tensor& input_gradient, const Loss*) const {
    Arena kept = Arena::borrowing(saved, saved_bytes(context.batch.shape));
    const Saved activations = allocate_saved(kept, context.batch.shape, Category::kActivations);
    // The gradient of h lives where that of x will.
    feed_forward_backward(context, units, activations, output_gradient, input_gradient);
    attention_backward(context, units, input, activations, input_gradient, input_gradient);
}

void OptBlock::feed_forward_backward(const Context& context, Groups units, const Saved& saved,
                                     const Tensor& output_gradient, const Tensor& hidden_gradient) const {
    kernels::Backend& backend = context.backend;
    const UnitView& unit = units[0];
    const FusedLinear &first = linears_[kFirstRun], &second = linears_[kSecondRun];
    const Arena::Scope scope(context.workspace);
    const FeedForwardScratch scratch = allocate_feed_forward(context.workspace, output_gradient.rows(), true);
    const Tensor& gradient = scratch.activation_gradient;
    second.lora_hidden_gradient(context, units, output_gradient, scratch.second_low_gradient);
    second.input_gradient(context, units, output_gradient, scratch.second_low_gradient, gradient);
    second.weight_gradient(context, units, output_gradient, saved.activation, saved.lora_hidden[kSecondRun],
                           scratch.second_low_gradient);
    bias_gradient(context, unit, output_gradient, kSecondBias);
    backend.relu_backward(saved.activation, gradient);
    bias_gradient(context, unit, gradient, kFirstBias);
    backend.layernorm_apply(saved.hidden, unit.weight(kFinalNorm), unit.weight(kFinalNormBias), saved.hidden_moments,
                            scratch.normed);
    first.lora_hidden_gradient(context, units, gradient, scratch.first_low_gradient);
    first.weight_gradient(context, units, gradient, scratch.normed, saved.lora_hidden[kFirstRun],
                          scratch.first_low_gradient);
    first.input_gradient(context, units, gradient, scratch.first_low_gradient, scratch.normed);
    backend.layernorm_backward(saved.hidden, unit.weight(kFinalNorm), saved.hidden_moments, scratch.normed,
                               output_gradient, hidden_gradient, unit.gradient(kFinalNorm),
                               unit.gradient(kFinalNormBias), unit.accumulate());
}

void OptBlock::attention_backward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                                  const Tensor& hidden_gradient, const Tensor& input_gradient) const {
    kernels::Backend& backend = context.backend;
    const UnitView& unit = units[0];
    const FusedLinear &qkv = linears_[kQkv], &out = linears_[kOut];
    const Arena::Scope scope(context.workspace);
    const AttentionScratch scratch = allocate_attention(context.workspace, input.rows(), true);
    out.lora_hidden_gradient(context, units, hidden_gradient, scratch.out_low_gradient);
    out.input_gradient(context, units, hidden_gradient, scratch.out_low_gradient, scratch.attention_gradient);
    out.weight_gradient(context, units, hidden_gradient, saved.attention, saved.lora_hidden[kOut],
                        scratch.out_low_gradient);
    bias_gradient(context, unit, hidden_gradient, kOutBias);
    backend.attention_backward(attention_shape(context.batch.shape), saved.qkv, context.batch.segment_starts,
                               saved.attention, saved.log_sum_exp, scratch.attention_gradient, scratch.qkv_gradient,
                               context.workspace);
    bias_gradient(context, unit, scratch.qkv_gradient, kQueryBias, 3);
    backend.layernorm_apply(input, unit.weight(kAttentionNorm), unit.weight(kAttentionNormBias), saved.input_moments,
                            scratch.normed);
    qkv.lora_hidden_gradient(context, units, scratch.qkv_gradient, scratch.qkv_lora_hidden_gradient);
    qkv.weight_gradient(context, units, scratch.qkv_gradient, scratch.normed, saved.lora_hidden[kQkv],
                        scratch.qkv_lora_hidden_gradient);
    if (!context.input_gradient_needed) return;
    qkv.input_gradient(context, units, scratch.qkv_gradient, scratch.qkv_lora_hidden_gradient, scratch.normed);
    backend.layernorm_backward(input, unit.weight(kAttentionNorm), saved.input_moments, scratch.normed, hidden_gradient,
                               input_gradient, unit.gradient(kAttentionNorm), unit.gradient(kAttentionNormBias),
                               unit.accumulate());
}

double OptBlock::forward_flops(const BatchShape& shape) const {
    const double rows = static_cast<double>(shape.tokens()), hidden = static_cast<double>(hidden_);
    const double weights = hidden * (4.0 * hidden + 2.0 * static_cast<double>(feed_forward_));
    const double keys_seen = (static_cast<double>(shape.length) + 1.0) / 2.0;
    return 2.0 * rows * weights + 4.0 * rows * keys_seen * hidden;
}

}  // namespace atl::model
