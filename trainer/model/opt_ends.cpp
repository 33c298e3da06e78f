// OPT's first and last block.

#include <algorithm>
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
// Places in the group of positions, and in that of the head.
enum : std::size_t { kPositionTable, kProjectIn };
enum : std::size_t { kLastNorm, kLastNormBias, kProjectOut };

Parameter opt_matrix(const ModelConfig& config, const char* name, std::int64_t rows, std::int64_t columns) {
    return {.name = name, .shape = {rows, columns}, .init_deviation = static_cast<float>(config.initializer_range)};
}

Tensor used_positions(const Tensor& table) {
    return table.row_range(kPositionOffset, table.rows() - kPositionOffset);
}

}  // namespace

OptEmbeddingBlock::OptEmbeddingBlock(const ModelConfig& config, std::vector<std::size_t> groups)
    : groups_(std::move(groups)),
      hidden_(config.hidden_size),
      embedding_(config.embedding_size()),
      positions_(config.max_position_embeddings),
      projects_(embedding_ != hidden_) {}

ParameterGroup OptEmbeddingBlock::make_positions_group(const ModelConfig& config) {
    ParameterGroup group{.name = "positions", .parameters = {}};
    group.add(opt_matrix(config, "model.decoder.embed_positions.weight",
                         config.max_position_embeddings + kPositionOffset, config.hidden_size));
    if (config.embedding_size() != config.hidden_size)
        group.add(opt_matrix(config, "model.decoder.project_in.weight", config.hidden_size, config.embedding_size()));
    return group;
}

OptEmbeddingBlock::Scratch OptEmbeddingBlock::cut_scratch(Arena& arena, std::int64_t rows) const {
    const auto cut = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    Scratch scratch{.tokens = cut(embedding_), .token_gradients = {}, .positions = {}};
    scratch.token_gradients = projects_ ? cut(embedding_) : Tensor();
    scratch.positions = projects_ ? cut(hidden_) : scratch.tokens;
    return scratch;
}

std::int64_t OptEmbeddingBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    cut_scratch(arena, shape.rows());
    return arena.peak_bytes();
}

std::int64_t OptEmbeddingBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                                      std::int64_t) const {
    return workspace_bytes(backend, shape, false);
}

void OptEmbeddingBlock::forward(const Context& context, std::span<const GroupView> groups, const Tensor&,
                                const Tensor& output, std::byte*, const Loss*) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, batch.shape.rows());
    if (projects_) {
        backend.embedding_forward(groups[0].weight(0), batch.input_ids, scratch.tokens);
        backend.matmul(scratch.tokens, false, groups[1].weight(kProjectIn), true, output, false);
    } else {
        backend.embedding_forward(groups[0].weight(0), batch.input_ids, output);
    }
    backend.embedding_forward(used_positions(groups[1].weight(kPositionTable)), batch.positions, scratch.positions);
    backend.add(output, scratch.positions, output);
}

void OptEmbeddingBlock::backward(const Context& context, std::span<const GroupView> groups, const Tensor&, std::byte*,
                                 const Tensor& output_gradient, const Tensor&, const Loss*) const {
    kernels::Backend& backend = context.backend;
    const Batch& batch = context.batch;
    const Tensor table = groups[1].gradient(kPositionTable);
    if (!groups[1].accumulate()) backend.zero(table);  // its unused rows too
    backend.embedding_backward(batch.positions, output_gradient, used_positions(table), true);
    if (!projects_) {
        backend.embedding_backward(batch.input_ids, output_gradient, groups[0].gradient(0), groups[0].accumulate());
        return;
    }
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, batch.shape.rows());
    backend.embedding_forward(groups[0].weight(0), batch.input_ids, scratch.tokens);
    backend.matmul(output_gradient, true, scratch.tokens, false, groups[1].gradient(kProjectIn),
                   groups[1].accumulate());
    backend.matmul(output_gradient, false, groups[1].weight(kProjectIn), false, scratch.token_gradients, false);
    backend.embedding_backward(batch.input_ids, scratch.token_gradients, groups[0].gradient(0), groups[0].accumulate());
}

void OptEmbeddingBlock::infer(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                              const Tensor& output, LayerCache&) const {
    forward(context, groups, input, output, nullptr, nullptr);
}

double OptEmbeddingBlock::forward_flops(const BatchShape& shape) const {
    return projects_ ? 2.0 * static_cast<double>(shape.rows()) * static_cast<double>(hidden_ * embedding_) : 0.0;
}

OptHeadBlock::OptHeadBlock(const ModelConfig& config, std::vector<std::size_t> groups, std::size_t table)
    : groups_(std::move(groups)),
      table_(table),
      hidden_(config.hidden_size),
      embedding_(config.embedding_size()),
      vocabulary_(config.vocab_size),
      projects_(embedding_ != hidden_),
      epsilon_(static_cast<float>(config.norm_eps)) {}

ParameterGroup OptHeadBlock::make_group(const ModelConfig& config) {
    ParameterGroup group{.name = "head", .parameters = {}};
    const std::string norm = "model.decoder.final_layer_norm.";
    group.add({.name = norm + "weight", .shape = {config.hidden_size}, .init = Init::kOnes, .is_norm = true});
    group.add({.name = norm + "bias", .shape = {config.hidden_size}, .init = Init::kZeros, .is_norm = true});
    if (config.embedding_size() != config.hidden_size)
        group.add(opt_matrix(config, "model.decoder.project_out.weight", config.embedding_size(), config.hidden_size));
    if (!config.tie_word_embeddings)
        group.add(opt_matrix(config, kHeadWeight, config.vocab_size, config.embedding_size()));
    return group;
}

OptHeadBlock::Scratch OptHeadBlock::cut_scratch(Arena& arena, const BatchShape& shape) const {
    const auto cut = [&](std::int64_t rows, std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {rows, columns});
    };
    Scratch scratch;
    scratch.normed = cut(shape.rows(), hidden_);
    scratch.moments = cut(shape.rows(), 2);
    scratch.features = projects_ ? cut(shape.rows(), embedding_) : scratch.normed;
    scratch.feature_gradients = projects_ ? cut(shape.rows(), embedding_) : Tensor();
    scratch.logits = cut(loss_chunk_rows(shape, vocabulary_), vocabulary_);
    return scratch;
}

std::int64_t OptHeadBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    cut_scratch(arena, shape);
    return arena.peak_bytes();
}

std::int64_t OptHeadBlock::infer_workspace_bytes(const kernels::Backend&, const BatchShape& shape, std::int64_t) const {
    Arena arena = Arena::measuring();
    cut_scratch(arena, shape);
    arena.allocate(Category::kWorkspace, DType::kF32, {shape.batch, embedding_});
    return arena.peak_bytes();
}

void OptHeadBlock::compute_features(const Context& context, const GroupView& group, const Tensor& input,
                                    const Scratch& scratch) const {
    context.backend.layernorm_forward(input, group.weight(kLastNorm), group.weight(kLastNormBias), epsilon_,
                                      scratch.normed, scratch.moments);
    if (projects_)
        context.backend.matmul(scratch.normed, false, group.weight(kProjectOut), true, scratch.features, false);
}

void OptHeadBlock::forward(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                           const Tensor&, std::byte*, const Loss* loss) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    compute_features(context, groups.front(), input, scratch);
    chunked_loss_forward(context, scratch.features, groups.back().weight(table_), scratch.logits, *loss);
}

void OptHeadBlock::backward(const Context& context, std::span<const GroupView> groups, const Tensor& input, std::byte*,
                            const Tensor&, const Tensor& input_gradient, const Loss* loss) const {
    kernels::Backend& backend = context.backend;
    const GroupView& head = groups.front();
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    compute_features(context, head, input, scratch);
    const Tensor& gradients = projects_ ? scratch.feature_gradients : input_gradient;
    chunked_loss_backward(context, scratch.features, groups.back().weight(table_), scratch.logits, *loss,
                          groups.back().gradient(table_), groups.back().accumulate(), gradients);
    if (projects_) {
        if (head.trains())
            backend.matmul(gradients, true, scratch.normed, false, head.gradient(kProjectOut), head.accumulate());
        backend.matmul(gradients, false, head.weight(kProjectOut), false, input_gradient, false);
    }
    backend.layernorm_backward(input, head.weight(kLastNorm), scratch.moments, input_gradient, {}, input_gradient,
                               head.gradient(kLastNorm), head.gradient(kLastNormBias), head.accumulate());
}

void OptHeadBlock::infer(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                         const Tensor& output, LayerCache&) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    const Tensor last =
        context.workspace.allocate(Category::kWorkspace, DType::kF32, {context.batch.shape.batch, embedding_});
    compute_features(context, groups.front(), input, scratch);
    last_rows(context, scratch.features, last);
    context.backend.matmul(last, false, groups.back().weight(table_), true, output, false);
}

double OptHeadBlock::forward_flops(const BatchShape& shape) const {
    const double rows = static_cast<double>(shape.rows()), embedding = static_cast<double>(embedding_);
    const double project = projects_ ? static_cast<double>(hidden_) * embedding : 0.0;
    return 2.0 * rows * (project + embedding * static_cast<double>(vocabulary_));
}

}  // namespace atl::model
