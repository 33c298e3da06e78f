#include <algorithm>
#include <string>

#include "trainer/model/blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;

FusedLinear make_table(const ModelConfig& config, std::vector<FsdpUnit>& units, bool is_shared) {
    if (is_shared) return {units.front(), 0};
    const bool is_tied = config.tie_word_embeddings;
    return {config,
            units.back(),
            is_tied ? config.architecture.prefix : std::string_view(),
            {{is_tied ? "embed_tokens" : "lm_head", config.vocab_size}},
            config.embedding_size()};
}

}  // namespace

HeadBlock::HeadBlock(const ModelConfig& config, std::vector<FsdpUnit>& units, bool has_embedding)
    : Block("head", units),
      is_tied_(config.tie_word_embeddings),
      shares_table_(is_tied_ && has_embedding),
      hidden_(config.hidden_size),
      embedding_(config.embedding_size()),
      vocabulary_(config.vocab_size),
      norm_(config, units.back(), config.architecture.prefix, config.architecture.final_norm),
      project_out_(embedding_ == hidden_ ? std::optional<FusedLinear>()
                                         : FusedLinear(config, units.back(), config.architecture.prefix,
                                                       {{"project_out", embedding_}}, hidden_)),
      table_(make_table(config, units, shares_table_)) {
    if (shares_table_) units_.push_back(0);
}

std::vector<FusedLinear*> HeadBlock::linears() {
    std::vector<FusedLinear*> linears;
    if (!is_tied_) linears.push_back(&table_);
    if (project_out_) linears.push_back(&*project_out_);
    return linears;
}

HeadBlock::Scratch HeadBlock::allocate_scratch(Arena& arena, const kernels::Backend& backend,
                                               const BatchShape& shape) const {
    const std::int64_t tokens = shape.tokens();
    const auto allocate = [&](std::int64_t columns) {
        return arena.allocate(Category::kWorkspace, formats_.activations, {tokens, columns});
    };
    const auto allocate_lora_hidden = [&] {
        return project_out_->allocate_lora_hidden(arena, formats_.activations, tokens, Category::kWorkspace);
    };
    Scratch scratch;
    scratch.normed = allocate(hidden_);
    scratch.statistics = norm_.allocate_statistics(arena, tokens, Category::kWorkspace);
    scratch.features = scratch.normed;
    if (project_out_) {
        scratch.features = allocate(embedding_);
        scratch.feature_gradients = allocate(embedding_);
        scratch.lora_hidden = allocate_lora_hidden();
        scratch.lora_hidden_gradient = allocate_lora_hidden();
    }
    scratch.loss = allocate_loss(arena, formats_, table_, loss_chunk_tokens(backend, shape, vocabulary_), vocabulary_);
    return scratch;
}

std::int64_t HeadBlock::workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, backend, shape);
    return arena.peak_bytes() +
           std::max(
               table_.workspace_bytes(backend, formats_.activations, loss_chunk_tokens(backend, shape, vocabulary_)),
               project_out_ ? project_out_->workspace_bytes(backend, formats_.activations, shape.tokens()) : 0);
}

std::int64_t HeadBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                              std::int64_t) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, backend, shape);
    arena.allocate(Category::kWorkspace, formats_.activations, {shape.batch, embedding_});
    table_.allocate_lora_hidden(arena, formats_.activations, shape.batch, Category::kWorkspace);
    return arena.peak_bytes();
}

void HeadBlock::compute_features(const Context& context, std::span<const UnitView> units, const Tensor& input,
                                 const Scratch& scratch) const {
    norm_.forward(context.backend, units.front(), input, scratch.normed, scratch.statistics);
    if (!project_out_) return;
    project_out_->forward(context, project_units(units), scratch.normed, scratch.features, scratch.lora_hidden);
}

void HeadBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor&,
                        const SavedMemory&, const Loss* loss) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.backend, context.batch.shape);
    compute_features(context, units, input, scratch);
    chunked_loss_forward(context, table_, table_units(units), scratch.features, scratch.loss, *loss);
}

void HeadBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                         const SavedMemory&, const Tensor&, const Tensor& input_gradient, const Loss* loss) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.backend, context.batch.shape);
    compute_features(context, units, input, scratch);
    const Tensor& gradients = project_out_ ? scratch.feature_gradients : input_gradient;
    chunked_loss_backward(context, table_, table_units(units), scratch.features, scratch.loss, *loss, gradients);
    if (project_out_) {
        project_out_->backward(context, project_units(units), gradients, scratch.normed, scratch.lora_hidden,
                               scratch.lora_hidden_gradient, input_gradient);
    }
    norm_.backward(context.backend, units.front(), input, scratch.statistics, input_gradient, {}, input_gradient);
}

void HeadBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                      const Tensor& output, LayerCache&) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.backend, shape);
    const Tensor last =
        context.workspace.allocate(Category::kWorkspace, formats_.activations, {shape.batch, embedding_});
    compute_features(context, units, input, scratch);
    copy_last_tokens(context, scratch.features, last);
    table_.forward(
        context, table_units(units), last, output,
        table_.allocate_lora_hidden(context.workspace, formats_.activations, shape.batch, Category::kWorkspace));
}

double HeadBlock::forward_flops(const BatchShape& shape) const {
    const double tokens = static_cast<double>(shape.tokens()), embedding = static_cast<double>(embedding_);
    const double project = project_out_ ? static_cast<double>(hidden_) * embedding : 0.0;
    return 2.0 * tokens * (project + embedding * static_cast<double>(vocabulary_));
}

}  // namespace atl::model
