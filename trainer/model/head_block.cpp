#include <utility>

#include "trainer/model/blocks.h"
#include "trainer/model/chunked_loss.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

}  // namespace

HeadBlock::HeadBlock(const ModelConfig& config, std::vector<std::size_t> units, const FsdpUnit& table,
                     std::size_t index)
    : units_(std::move(units)),
      is_tied_(units_.size() > 1),
      table_(table, index, 1),
      hidden_(config.hidden_size),
      vocabulary_(config.vocab_size),
      epsilon_(static_cast<float>(config.norm_eps)) {}

HeadBlock::Scratch HeadBlock::allocate_scratch(Arena& arena, const BatchShape& shape) const {
    const auto cut = [&](std::initializer_list<std::int64_t> dims) {
        return arena.allocate(Category::kWorkspace, DType::kF32, dims);
    };
    return {.normed = cut({shape.tokens(), hidden_}),
            .rstd = cut({shape.tokens()}),
            .loss = allocate_loss(arena, table_, shape, vocabulary_)};
}

std::int64_t HeadBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    allocate_scratch(arena, shape);
    return arena.peak_bytes() + table_.workspace_bytes(loss_chunk_rows(shape, vocabulary_));
}

std::int64_t HeadBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                              std::int64_t) const {
    Arena arena = Arena::measuring();
    arena.allocate(Category::kWorkspace, DType::kF32, {shape.batch, hidden_});
    table_.allocate_lora_hidden(arena, shape.batch, Category::kWorkspace);
    return workspace_bytes(backend, shape, false) + arena.peak_bytes();
}

void HeadBlock::forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor&,
                        std::byte*, const Loss* loss) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.batch.shape);
    context.backend.rmsnorm_forward(input, units.front().weight(0), epsilon_, scratch.normed, scratch.rstd);
    chunked_loss_forward(context, table_, table_groups(units), scratch.normed, scratch.loss, *loss);
}

void HeadBlock::backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte*,
                         const Tensor&, const Tensor& input_gradient, const Loss* loss) const {
    const UnitView& norm = units.front();
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, context.batch.shape);
    context.backend.rmsnorm_forward(input, norm.weight(0), epsilon_, scratch.normed, scratch.rstd);
    chunked_loss_backward(context, table_, table_groups(units), scratch.normed, scratch.loss, *loss, input_gradient);
    context.backend.rmsnorm_backward(input, norm.weight(0), scratch.rstd, input_gradient, {}, input_gradient,
                                     norm.gradient(0), norm.accumulate());
}

void HeadBlock::infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                      const Tensor& output, LayerCache&) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = allocate_scratch(context.workspace, shape);
    const Tensor last = context.workspace.allocate(Category::kWorkspace, DType::kF32, {shape.batch, hidden_});
    context.backend.rmsnorm_forward(input, units.front().weight(0), epsilon_, scratch.normed, scratch.rstd);
    last_rows(context, scratch.normed, last);
    table_.forward(context, table_groups(units), last, output,
                   table_.allocate_lora_hidden(context.workspace, shape.batch, Category::kWorkspace));
}

double HeadBlock::forward_flops(const BatchShape& shape) const {
    return 2.0 * static_cast<double>(shape.tokens()) * static_cast<double>(hidden_) * static_cast<double>(vocabulary_);
}

}  // namespace atl::model
