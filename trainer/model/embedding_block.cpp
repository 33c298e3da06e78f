#include "shared/model_config/tensors.h"
#include "trainer/model/blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

Tensor used_positions(const Tensor& table) {
    return table.row_range(model_config::kUnusedPositions, table.rows() - model_config::kUnusedPositions);
}

}  // namespace

// The positions are a unit of their own: a tied head's backward pass comes first and begins the table's gradient. They
// are the first of this block's units, as project_in is in it.
EmbeddingBlock::EmbeddingBlock(const ModelConfig& config, std::vector<FsdpUnit>& units)
    : Block("embedding", units),
      learns_positions_(config.architecture.positions == Positions::kLearned),
      hidden_(config.hidden_size),
      embedding_(config.embedding_size()) {
    const std::string prefix(config.architecture.prefix);
    const auto add_table = [&](const char* name, std::int64_t rows, std::int64_t columns) {
        units.back().add({.name = prefix + name,
                          .shape = {rows, columns},
                          .init_deviation = static_cast<float>(config.initializer_range)});
    };
    add_table("embed_tokens.weight", config.vocab_size, embedding_);
    if (!learns_positions_) return;
    units_.insert(units_.begin(), units.size());
    units.push_back({.name = "positions", .parameters = {}});
    add_table("embed_positions.weight", config.max_position_embeddings + model_config::kUnusedPositions, hidden_);
    if (embedding_ == hidden_) return;
    project_in_.emplace(FusedLinear(config, units.back(), prefix, {{"project_in", hidden_}}, embedding_));
}

std::vector<FusedLinear*> EmbeddingBlock::linears() {
    if (!project_in_) return {};
    return {&*project_in_};
}

EmbeddingBlock::Scratch EmbeddingBlock::allocate_scratch(Arena& arena, std::int64_t tokens) const {
    const auto allocate = [&](DType format, std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, format, {tokens, columns});
    };
    const auto allocate_lora_hidden = [&] {
        return project_in_->allocate_lora_hidden(arena, formats_.activations, tokens, Category::kWorkspace);
    };
    Scratch scratch;
    if (learns_positions_) scratch.positions = allocate(formats_.residual, hidden_);
    if (!project_in_) return scratch;
    scratch.tokens = allocate(formats_.activations, embedding_);
    scratch.token_gradients = allocate(formats_.activations, embedding_);
    scratch.lora_hidden = allocate_lora_hidden();
    scratch.lora_hidden_gradient = allocate_lora_hidden();
    return scratch;
}

std::int64_t EmbeddingBlock::workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, shape.tokens());
    return arena.peak_bytes() +
           (project_in_ ? project_in_->workspace_bytes(backend, formats_.activations, shape.tokens()) : 0);
}

std::int64_t EmbeddingBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                                   std::int64_t) const {
    return workspace_bytes(backend, shape, false);
}

void EmbeddingBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor&,
                             const Tensor& output, const SavedMemory&, const Loss*) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, batch.shape.tokens());
    const Tensor table = units[own_units() - 1].weight(0);
    backend.embedding_forward(table, batch.input_ids, project_in_ ? scratch.tokens : output);
    if (project_in_) {
        const auto project_units = with_adapters(units, 0, own_units());
        project_in_->forward(context, project_units, scratch.tokens, output, scratch.lora_hidden);
    }
    if (!learns_positions_) return;
    backend.embedding_forward(used_positions(units[0].weight(0)), batch.positions, scratch.positions);
    backend.add(output, scratch.positions, output);
}

void EmbeddingBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor&,
                              const SavedMemory&, const Tensor& output_gradient, const Tensor&, const Loss*) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const UnitView &positions = units[0], &tokens = units[own_units() - 1];
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, batch.shape.tokens());
    if (learns_positions_ && positions.trains()) {
        const Tensor table = positions.gradient(0);
        if (!positions.accumulate()) backend.zero(table);  // its unused rows too
        backend.embedding_backward(batch.positions, batch.by_position, output_gradient, used_positions(table), true);
    }
    if (project_in_) {
        const auto project_units = with_adapters(units, 0, own_units());
        backend.embedding_forward(tokens.weight(0), batch.input_ids, scratch.tokens);
        project_in_->compute_lora_hidden(context, project_units, scratch.tokens, scratch.lora_hidden);
        project_in_->backward(context, project_units, output_gradient, scratch.tokens, scratch.lora_hidden,
                              scratch.lora_hidden_gradient, tokens.trains() ? scratch.token_gradients : Tensor());
    }
    if (!tokens.trains()) return;
    backend.embedding_backward(batch.input_ids, batch.by_id, project_in_ ? scratch.token_gradients : output_gradient,
                               tokens.gradient(0), tokens.accumulate());
}

void EmbeddingBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                           const Tensor& output, LayerCache&) const {
    forward(context, units, input, output, {}, nullptr);
}

double EmbeddingBlock::forward_flops(const BatchShape& shape) const {
    if (!project_in_) return 0;
    return 2.0 * static_cast<double>(shape.tokens()) * static_cast<double>(hidden_ * embedding_);
}

}  // namespace atl::model
