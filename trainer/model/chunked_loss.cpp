#include "trainer/model/chunked_loss.h"

#include <algorithm>

namespace atl::model {
namespace {

// Logits that exist at a time: 8 MiB stay in most machines' last cache, and a chunk has rows enough for the products.
constexpr std::int64_t kChunkElements = 2 << 20;
constexpr std::int64_t kChunkRowsMin = 64;

}  // namespace

std::int64_t loss_chunk_rows(const BatchShape& shape, std::int64_t vocabulary) {
    return std::min(shape.rows(), std::max(kChunkRowsMin, kChunkElements / vocabulary));
}

void chunked_loss_forward(const Context& context, const Tensor& features, const Tensor& table, const Tensor& logits,
                          const Loss& loss) {
    kernels::Backend& backend = context.backend;
    const std::int64_t rows = features.rows(), chunk = logits.rows();
    const Tensor targets = context.batch.targets.reshape({rows, 1}), losses = loss.token_losses.reshape({rows, 1});
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        const std::int64_t count = std::min(chunk, rows - begin);
        const Tensor some = logits.row_range(0, count);
        backend.matmul(features.row_range(begin, count), false, table, true, some, false);
        backend.cross_entropy_forward(some, targets.row_range(begin, count), losses.row_range(begin, count));
        context.between_products();
    }
}

void chunked_loss_backward(const Context& context, const Tensor& features, const Tensor& table, const Tensor& logits,
                           const Loss& loss, const Tensor& table_gradient, bool accumulate,
                           const Tensor& feature_gradients) {
    kernels::Backend& backend = context.backend;
    const std::int64_t rows = features.rows(), chunk = logits.rows();
    const Tensor targets = context.batch.targets.reshape({rows, 1}), losses = loss.token_losses.reshape({rows, 1});
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        const std::int64_t count = std::min(chunk, rows - begin);
        const Tensor some = logits.row_range(0, count), from = features.row_range(begin, count);
        backend.matmul(from, false, table, true, some, false);
        backend.cross_entropy_backward(some, targets.row_range(begin, count), loss.gradient_scale,
                                       losses.row_range(begin, count));
        if (!table_gradient.empty()) {
            backend.matmul(some, true, from, false, table_gradient, begin > 0 || accumulate);
        }
        backend.matmul(some, false, table, false, feature_gradients.row_range(begin, count), false);
        context.between_products();
    }
}

void last_rows(const Context& context, const Tensor& x, const Tensor& last) {
    const BatchShape& shape = context.batch.shape;
    for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
        context.backend.copy(x.row_range((sequence + 1) * shape.length - 1, 1), last.row_range(sequence, 1));
    }
}

}  // namespace atl::model
