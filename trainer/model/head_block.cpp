#include <utility>

#include "trainer/model/blocks.h"
#include "trainer/model/chunked_loss.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

}  // namespace

HeadBlock::HeadBlock(const ModelConfig& config, std::vector<std::size_t> groups, std::size_t table)
    : groups_(std::move(groups)),
      table_(table),
      hidden_(config.hidden_size),
      vocabulary_(config.vocab_size),
      epsilon_(static_cast<float>(config.norm_eps)) {}

HeadBlock::Scratch HeadBlock::cut_scratch(Arena& arena, const BatchShape& shape) const {
    const auto cut = [&](std::initializer_list<std::int64_t> dims) {
        return arena.allocate(Category::kWorkspace, DType::kF32, dims);
    };
    return {.normed = cut({shape.rows(), hidden_}),
            .rstd = cut({shape.rows()}),
            .logits = cut({loss_chunk_rows(shape, vocabulary_), vocabulary_})};
}

std::int64_t HeadBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape, bool) const {
    Arena arena = Arena::measuring();
    cut_scratch(arena, shape);
    return arena.peak_bytes();
}

std::int64_t HeadBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                              std::int64_t) const {
    return workspace_bytes(backend, shape, false) + tensor::aligned(shape.batch * hidden_ * 4);
}

void HeadBlock::forward(const Context& context, std::span<const GroupView> groups, const Tensor& input, const Tensor&,
                        std::byte*, const Loss* loss) const {
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    context.backend.rmsnorm_forward(input, groups.front().weight(0), epsilon_, scratch.normed, scratch.rstd);
    chunked_loss_forward(context, scratch.normed, groups.back().weight(table_), scratch.logits, *loss);
}

void HeadBlock::backward(const Context& context, std::span<const GroupView> groups, const Tensor& input, std::byte*,
                         const Tensor&, const Tensor& input_gradient, const Loss* loss) const {
    const GroupView& norm = groups.front();
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    context.backend.rmsnorm_forward(input, norm.weight(0), epsilon_, scratch.normed, scratch.rstd);
    chunked_loss_backward(context, scratch.normed, groups.back().weight(table_), scratch.logits, *loss,
                          groups.back().gradient(table_), groups.back().accumulate(), input_gradient);
    context.backend.rmsnorm_backward(input, norm.weight(0), scratch.rstd, input_gradient, {}, input_gradient,
                                     norm.gradient(0), norm.accumulate());
}

void HeadBlock::infer(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                      const Tensor& output, LayerCache&) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, shape);
    const Tensor last = context.workspace.allocate(Category::kWorkspace, DType::kF32, {shape.batch, hidden_});
    context.backend.rmsnorm_forward(input, groups.front().weight(0), epsilon_, scratch.normed, scratch.rstd);
    last_rows(context, scratch.normed, last);
    context.backend.matmul(last, false, groups.back().weight(table_), true, output, false);
}

double HeadBlock::forward_flops(const BatchShape& shape) const {
    return 2.0 * static_cast<double>(shape.rows()) * static_cast<double>(hidden_) * static_cast<double>(vocabulary_);
}

}  // namespace atl::model
