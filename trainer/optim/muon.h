#pragma once

#include <cstdint>

#include "trainer/kernels/backend.h"

// Muon (Jordan et al., https://kellerjordan.github.io/posts/muon, 2024), as torch.optim.Muon computes it with
// adjust_lr_fn "match_rms_adamw" (Liu et al., arXiv:2502.16982), but in fp32: the direction of each weight matrix is
// its momentum, orthogonalised.
namespace atl::optim {

// What matrices are orthogonalised in, whatever the run's formats.
inline constexpr tensor::DType kDirectionDtype = tensor::DType::kF32;

// What orthogonalize() needs beside a matrix, for all matrices of at most so many elements and so long a shorter side.
struct OrthogonalizeScratch {
    tensor::Tensor product;       // fp32 [elements]
    tensor::Tensor gram, square;  // fp32 [side · side]
    tensor::Tensor squares;       // fp64 [1]

    static OrthogonalizeScratch lay_out(tensor::Arena& arena, std::int64_t elements_max, std::int64_t side_max);
};

// In place: x [rows, columns], fp32, becomes a matrix with about the same singular vectors and all singular values near
// 0.2 · sqrt(max(rows, columns)), by five Newton-Schulz steps. Then its elements are about as large as those of an
// AdamW step before the learning rate. A matrix of zeros stays as it is.
void orthogonalize(kernels::Backend& backend, const tensor::Tensor& x, const OrthogonalizeScratch& scratch);

}  // namespace atl::optim
