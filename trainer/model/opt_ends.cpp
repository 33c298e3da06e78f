// OPT's first and last block.

#include <algorithm>
#include <array>
#include <utility>

#include "trainer/model/chunked_loss.h"
#include "trainer/model/model.h"
#include "trainer/model/opt_blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// The table of positions begins with two rows that no position uses.
constexpr std::int64_t kPositionOffset = 2;
// Places in the unit of positions, and in that of the head.
enum : std::size_t { kPositionTable, kProjectIn };
enum : std::size_t { kLastNorm, kLastNormBias, kProjectOut };
// Of the embedding block's units.
enum : std::size_t { kPositions, kTokens, kAdapters };

Parameter opt_matrix(const ModelConfig& config, const char* name, std::int64_t rows, std::int64_t columns) {
    return {.name = name, .shape = {rows, columns}, .init_deviation = static_cast<float>(config.initializer_range)};
}

Tensor used_positions(const Tensor& table) {
    return table.row_range(kPositionOffset, table.rows() - kPositionOffset);
}

}  // namespace

OptEmbeddingBlock::OptEmbeddingBlock(const ModelConfig& config, std::vector<std::size_t> units)
    : units_(std::move(units)),
      hidden_(config.hidden_size),
      embedding_(config.embedding_size()),
      positions_(config.max_position_embeddings) {
    const FsdpUnit unit = make_positions_group(config);
    if (unit.parameters.size() > kProjectIn) project_in_.emplace_back(unit, kProjectIn, 1);
}

FsdpUnit OptEmbeddingBlock::make_positions_group(const ModelConfig& config) {
    FsdpUnit unit{.name = "positions", .parameters = {}};
    unit.add(opt_matrix(config, "model.decoder.embed_positions.weight",
                        config.max_position_embeddings + kPositionOffset, config.hidden_size));
    if (config.embedding_size() != config.hidden_size)
        unit.add(opt_matrix(config, "model.decoder.project_in.weight", config.hidden_size, config.embedding_size()));
    return unit;
}

OptEmbeddingBlock::Scratch OptEmbeddingBlock::allocate_scratch(Arena& arena, std::int64_t rows) const {
    const auto cut = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    Scratch scratch;
    scratch.tokens = cut(embedding_);
    scratch.positions = scratch.tokens;
    for (const FusedLinear& project : project_in_) {
        scratch.token_gradients = cut(embedding_);
        scratch.positions = cut(hidden_);
        scratch.lora_hidden = project.allocate_lora_hidden(arena, rows, Category::kWorkspace);
        scratch.lora_hidden_gradient = project.allocate_lora_hidden(arena, rows, Category::kWorkspace);
    }
    return scratch;
}

std::int64_t OptEmbeddingBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, shape.tokens());
    return arena.peak_bytes() + (project_in_.empty() ? 0 : project_in_[0].workspace_bytes(shape.tokens()));
}

std::int64_t OptEmbeddingBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                                      std::int64_t) const {
    return workspace_bytes(backend, shape, false);
}

void OptEmbeddingBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor&,
                                const Tensor& output, std::byte*, const Loss*) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, batch.shape.tokens());
    const bool projects = !project_in_.empty();
    backend.embedding_forward(units[kTokens].weight(0), batch.input_ids, projects ? scratch.tokens : output);
    if (projects) {
        const auto own = with_adapters(units, kPositions, kAdapters);
        project_in_[0].forward(context, own, scratch.tokens, output, scratch.lora_hidden);
    }
    const Tensor table = used_positions(units[kPositions].weight(kPositionTable));
    backend.embedding_forward(table, batch.positions, scratch.positions);
    backend.add(output, scratch.positions, output);
}

void OptEmbeddingBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor&, std::byte*,
                                 const Tensor& output_gradient, const Tensor&, const Loss*) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const UnitView &positions = units[kPositions], &tokens = units[kTokens];
    if (positions.trains()) {
        const Tensor table = positions.gradient(kPositionTable);
        if (!positions.accumulate()) backend.zero(table);  // its unused rows too
        backend.embedding_backward(batch.positions, output_gradient, used_positions(table), true);
    }
    if (!project_in_.empty()) return project_backward(context, units, output_gradient);
    if (tokens.trains())
        backend.embedding_backward(batch.input_ids, output_gradient, tokens.gradient(0), tokens.accumulate());
}

void OptEmbeddingBlock::project_backward(const Context& context, std::span<const UnitView> units,
                                         const Tensor& output_gradient) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const UnitView& tokens = units[kTokens];
    const FusedLinear& project = project_in_[0];
    const auto own = with_adapters(units, kPositions, kAdapters);
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, batch.shape.tokens());
    backend.embedding_forward(tokens.weight(0), batch.input_ids, scratch.tokens);
    project.lora_hidden(context, own, scratch.tokens, scratch.lora_hidden);
    project.lora_hidden_gradient(context, own, output_gradient, scratch.lora_hidden_gradient);
    project.weight_gradient(context, own, output_gradient, scratch.tokens, scratch.lora_hidden,
                            scratch.lora_hidden_gradient);
    if (!tokens.trains()) return;
    project.input_gradient(context, own, output_gradient, scratch.lora_hidden_gradient, scratch.token_gradients);
    backend.embedding_backward(batch.input_ids, scratch.token_gradients, tokens.gradient(0), tokens.accumulate());
}

void OptEmbeddingBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                              const Tensor& output, LayerCache&) const {
    forward(context, units, input, output, nullptr, nullptr);
}

double OptEmbeddingBlock::forward_flops(const BatchShape& shape) const {
    if (project_in_.empty()) return 0;
    return 2.0 * static_cast<double>(shape.tokens()) * static_cast<double>(hidden_ * embedding_);
}

OptHeadBlock::OptHeadBlock(const ModelConfig& config, std::vector<std::size_t> units, const FsdpUnit& table,
                           std::size_t index)
    : units_(std::move(units)),
      is_tied_(units_.size() > 1),
      linears_{FusedLinear(table, index, 1)},
      hidden_(config.hidden_size),
      embedding_(config.embedding_size()),
      vocabulary_(config.vocab_size),
      epsilon_(static_cast<float>(config.norm_eps)) {
    if (embedding_ != hidden_) linears_.emplace_back(make_group(config), kProjectOut, 1);
}

FsdpUnit OptHeadBlock::make_group(const ModelConfig& config) {
    FsdpUnit unit{.name = "head", .parameters = {}};
    const std::string norm = "model.decoder.final_layer_norm.";
    unit.add({.name = norm + "weight", .shape = {config.hidden_size}, .init = Init::kOnes, .is_norm = true});
    unit.add({.name = norm + "bias", .shape = {config.hidden_size}, .init = Init::kZeros, .is_norm = true});
    if (config.embedding_size() != config.hidden_size)
        unit.add(opt_matrix(config, "model.decoder.project_out.weight", config.embedding_size(), config.hidden_size));
    if (!config.tie_word_embeddings)
        unit.add(opt_matrix(config, kHeadWeight, config.vocab_size, config.embedding_size()));
    return unit;
}

OptHeadBlock::Scratch OptHeadBlock::allocate_scratch(Arena& arena, const BatchShape& shape) const {
    const auto cut = [&](std::int64_t rows, std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    Scratch scratch;
    scratch.normed = cut(shape.tokens(), hidden_);
    scratch.moments = cut(shape.tokens(), 2);
    scratch.features = scratch.normed;
    if (projects()) {
        scratch.features = cut(shape.tokens(), embedding_);
        scratch.feature_gradients = cut(shape.tokens(), embedding_);
        scratch.lora_hidden = project_out().allocate_lora_hidden(arena, shape.tokens(), Category::kWorkspace);
        scratch.lora_hidden_gradient = project_out().allocate_lora_hidden(arena, shape.tokens(), Category::kWorkspace);
    }
    scratch.loss = allocate_loss(arena, table(), shape, vocabulary_);
    return scratch;
}

std::int64_t OptHeadBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, shape);
    const std::int64_t of_table = table().workspace_bytes(loss_chunk_rows(shape, vocabulary_));
    const std::int64_t of_project = projects() ? project_out().workspace_bytes(shape.tokens()) : 0;
    return arena.peak_bytes() + std::max(of_table, of_project);
}

std::int64_t OptHeadBlock::infer_workspace_bytes(const kernels::Backend&, const BatchShape& shape, std::int64_t) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, shape);
    arena.allocate(Category::kWorkspace, DType::kF32, {shape.batch, embedding_});
    table().allocate_lora_hidden(arena, shape.batch, Category::kWorkspace);
    return arena.peak_bytes();
}

void OptHeadBlock::compute_features(const Context& context, std::span<const UnitView> units, const Tensor& input,
                                    const Scratch& scratch) const {
    const UnitView& head = units.front();
    context.backend.layernorm_forward(input, head.weight(kLastNorm), head.weight(kLastNormBias), epsilon_,
                                      scratch.normed, scratch.moments);
    if (!projects()) return;
    const auto own = project_groups(units);
    project_out().forward(context, own, scratch.normed, scratch.features, scratch.lora_hidden);
}

void OptHeadBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor&,
                           std::byte*, const Loss* loss) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.batch.shape);
    compute_features(context, units, input, scratch);
    chunked_loss_forward(context, table(), table_groups(units), scratch.features, scratch.loss, *loss);
}

void OptHeadBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte*,
                            const Tensor&, const Tensor& input_gradient, const Loss* loss) const {
    kernels::Backend& backend = context.backend;
    const UnitView& head = units.front();
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.batch.shape);
    compute_features(context, units, input, scratch);
    const Tensor& gradients = projects() ? scratch.feature_gradients : input_gradient;
    chunked_loss_backward(context, table(), table_groups(units), scratch.features, scratch.loss, *loss, gradients);
    if (projects()) {
        const auto own = project_groups(units);
        project_out().lora_hidden_gradient(context, own, gradients, scratch.lora_hidden_gradient);
        project_out().weight_gradient(context, own, gradients, scratch.normed, scratch.lora_hidden,
                                      scratch.lora_hidden_gradient);
        project_out().input_gradient(context, own, gradients, scratch.lora_hidden_gradient, input_gradient);
    }
    backend.layernorm_backward(input, head.weight(kLastNorm), scratch.moments, input_gradient, {}, input_gradient,
                               head.gradient(kLastNorm), head.gradient(kLastNormBias), head.accumulate());
}

void OptHeadBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                         const Tensor& output, LayerCache&) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.batch.shape);
    const Tensor last =
        context.workspace.allocate(Category::kWorkspace, DType::kF32, {context.batch.shape.batch, embedding_});
    compute_features(context, units, input, scratch);
    last_rows(context, scratch.features, last);
    table().forward(context, table_groups(units), last, output,
                    table().allocate_lora_hidden(context.workspace, context.batch.shape.batch, Category::kWorkspace));
}

double OptHeadBlock::forward_flops(const BatchShape& shape) const {
    const double rows = static_cast<double>(shape.tokens()), embedding = static_cast<double>(embedding_);
    const double project = projects() ? static_cast<double>(hidden_) * embedding : 0.0;
    return 2.0 * rows * (project + embedding * static_cast<double>(vocabulary_));
}

}  // namespace atl::model
