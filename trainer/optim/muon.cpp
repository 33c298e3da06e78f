#include "trainer/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace atl::optim {
namespace {

using tensor::Category;
using tensor::DType;
using tensor::Tensor;

constexpr int kSteps = 5;
constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
constexpr float kNormMin = 1e-7F;

Tensor matrix(const Tensor& memory, std::int64_t rows, std::int64_t columns) {
    return {memory.data(), DType::kF32, {rows, columns}};
}

}  // namespace

OrthogonalizeScratch OrthogonalizeScratch::lay_out(tensor::Arena& arena, std::int64_t elements_max,
                                                   std::int64_t side_max) {
    const auto allocate = [&](std::int64_t count) {
        return arena.allocate(Category::kWorkspace, DType::kF32, {count});
    };
    return {.product = allocate(elements_max),
            .gram = allocate(side_max * side_max),
            .square = allocate(side_max * side_max),
            .squares = arena.allocate(Category::kWorkspace, DType::kF64, {1})};
}

void orthogonalize(kernels::Backend& backend, const Tensor& x, const OrthogonalizeScratch& scratch) {
    const bool is_tall = x.rows() > x.columns();
    const std::int64_t side = std::min(x.rows(), x.columns());
    const Tensor gram = matrix(scratch.gram, side, side), square = matrix(scratch.square, side, side);
    Tensor now = x, next = matrix(scratch.product, x.rows(), x.columns());
    backend.sum_of_squares(x, scratch.squares, false);
    backend.divide_by_norm(x, scratch.squares, kNormMin);
    // With G = X·Xᵀ, or Xᵀ·X of a tall X: X = a·X + (b·G + c·G²)·X.
    for (int step = 0; step < kSteps; ++step) {
        backend.matmul(now, is_tall, now, !is_tall, gram, false);
        backend.matmul(gram, false, gram, false, square, false);
        backend.scale(gram, kB);
        backend.scale(square, kC);
        backend.add(gram, square, gram);
        backend.copy(now, next);
        backend.scale(next, kA);
        if (is_tall)
            backend.matmul(now, false, gram, false, next, true);
        else
            backend.matmul(gram, false, now, false, next, true);
        std::swap(now, next);
    }
    backend.copy(now, x);  // an odd number of steps ends in the scratch
    backend.scale(x, static_cast<float>(0.2 * std::sqrt(static_cast<double>(std::max(x.rows(), x.columns())))));
}

}  // namespace atl::optim
