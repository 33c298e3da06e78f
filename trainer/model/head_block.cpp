#include <algorithm>
#include <utility>

#include "trainer/model/blocks.h"

namespace atl::model {
namespace {

using tensor::Arena;
using tensor::Category;
using tensor::DType;

// Logits that exist at a time: 8 MiB stay in most machines' last cache, and a chunk has rows enough for the products.
constexpr std::int64_t kChunkElements = 2 << 20;
constexpr std::int64_t kChunkRowsMin = 64;

}  // namespace

HeadBlock::HeadBlock(const ModelConfig& config, std::vector<std::size_t> groups, std::size_t table)
    : groups_(std::move(groups)),
      table_(table),
      hidden_(config.hidden_size),
      vocabulary_(config.vocab_size),
      epsilon_(static_cast<float>(config.rms_norm_eps)) {}

std::int64_t HeadBlock::chunk_rows(const BatchShape& shape) const {
    return std::min(shape.rows(), std::max(kChunkRowsMin, kChunkElements / vocabulary_));
}

HeadBlock::Scratch HeadBlock::cut_scratch(Arena& arena, const BatchShape& shape) const {
    const auto cut = [&](std::initializer_list<std::int64_t> dims) {
        return arena.allocate(Category::kWorkspace, DType::kF32, dims);
    };
    return {.normed = cut({shape.rows(), hidden_}),
            .rstd = cut({shape.rows()}),
            .logits = cut({chunk_rows(shape), vocabulary_})};
}

std::int64_t HeadBlock::workspace_bytes(const kernels::Backend&, const BatchShape& shape) const {
    Arena arena = Arena::measuring();
    cut_scratch(arena, shape);
    return arena.peak_bytes();
}

std::int64_t HeadBlock::infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                              std::int64_t) const {
    return workspace_bytes(backend, shape) + tensor::aligned(shape.batch * hidden_ * 4);
}

void HeadBlock::forward(const Context& context, std::span<const GroupView> groups, const Tensor& input, const Tensor&,
                        std::byte*, const Loss* loss) const {
    kernels::Backend& backend = context.backend;
    const std::int64_t rows = input.rows(), chunk = chunk_rows(context.batch.shape);
    const Tensor table = groups.back().weight(table_);
    const Tensor targets = context.batch.targets.reshape({rows, 1}), losses = loss->token_losses.reshape({rows, 1});
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    backend.rmsnorm_forward(input, groups.front().weight(0), epsilon_, scratch.normed, scratch.rstd);
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        const std::int64_t count = std::min(chunk, rows - begin);
        const Tensor logits = scratch.logits.row_range(0, count);
        backend.matmul(scratch.normed.row_range(begin, count), false, table, true, logits, false);
        backend.cross_entropy_forward(logits, targets.row_range(begin, count), losses.row_range(begin, count));
    }
}

void HeadBlock::backward(const Context& context, std::span<const GroupView> groups, const Tensor& input, std::byte*,
                         const Tensor&, const Tensor& input_gradient, const Loss* loss) const {
    kernels::Backend& backend = context.backend;
    const std::int64_t rows = input.rows(), chunk = chunk_rows(context.batch.shape);
    const GroupView& norm = groups.front();
    const Tensor table = groups.back().weight(table_), table_gradient = groups.back().gradient(table_);
    const Tensor targets = context.batch.targets.reshape({rows, 1}), losses = loss->token_losses.reshape({rows, 1});
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, context.batch.shape);
    backend.rmsnorm_forward(input, norm.weight(0), epsilon_, scratch.normed, scratch.rstd);
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        const std::int64_t count = std::min(chunk, rows - begin);
        const Tensor logits = scratch.logits.row_range(0, count), normed = scratch.normed.row_range(begin, count);
        backend.matmul(normed, false, table, true, logits, false);
        backend.cross_entropy_backward(logits, targets.row_range(begin, count), loss->gradient_scale,
                                       losses.row_range(begin, count));
        backend.matmul(logits, true, normed, false, table_gradient, begin > 0 || groups.back().accumulate());
        backend.matmul(logits, false, table, false, input_gradient.row_range(begin, count), false);
    }
    backend.rmsnorm_backward(input, norm.weight(0), scratch.rstd, input_gradient, {}, input_gradient, norm.gradient(0),
                             norm.accumulate());
}

void HeadBlock::infer(const Context& context, std::span<const GroupView> groups, const Tensor& input,
                      const Tensor& output, LayerCache&) const {
    const BatchShape& shape = context.batch.shape;
    const Arena::Scope scope(context.workspace);
    const Scratch scratch = cut_scratch(context.workspace, shape);
    const Tensor last = context.workspace.allocate(Category::kWorkspace, DType::kF32, {shape.batch, hidden_});
    context.backend.rmsnorm_forward(input, groups.front().weight(0), epsilon_, scratch.normed, scratch.rstd);
    for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
        context.backend.copy(scratch.normed.row_range((sequence + 1) * shape.length - 1, 1),
                             last.row_range(sequence, 1));
    }
    context.backend.matmul(last, false, groups.back().weight(table_), true, output, false);
}

double HeadBlock::forward_flops(const BatchShape& shape) const {
    return 2.0 * static_cast<double>(shape.rows()) * static_cast<double>(hidden_) * static_cast<double>(vocabulary_);
}

}  // namespace atl::model
