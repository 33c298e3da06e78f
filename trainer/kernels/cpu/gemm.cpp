#include "trainer/kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>

namespace atl::kernels::cpu {
namespace {

// Multiply-adds that are worth a tile, and the fewest rows or columns of one.
constexpr std::int64_t kTileWork = 24'000'000;
constexpr std::int64_t kTileEdge = 96;
constexpr std::int64_t kTilesMax = 16;

// OpenBLAS' own threads would fight ours.
void use_one_blas_thread() {
    static const bool done = (openblas_set_num_threads(1), true);
    (void)done;
}

void run_tile(std::int64_t m, std::int64_t n, std::int64_t k, GemmOperand a, GemmOperand b, float* c,
              std::int64_t c_stride, bool accumulate) {
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
                static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0F, a.data,
                static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), accumulate ? 1.0F : 0.0F, c,
                static_cast<blasint>(c_stride));
}

}  // namespace

const char* blas_kernels() {
    return openblas_get_corename();
}

void gemm(ThreadPool& pool, std::int64_t m, std::int64_t n, std::int64_t k, GemmOperand a, GemmOperand b, float* c,
          std::int64_t c_stride, bool accumulate) {
    use_one_blas_thread();
    const bool split_rows = m >= n;
    const std::int64_t edge = split_rows ? m : n;
    const std::int64_t wanted = std::min({m * n * k / kTileWork + 1, edge / kTileEdge, kTilesMax});
    const std::int64_t step = (edge / std::max<std::int64_t>(wanted, 1) + 15) / 16 * 16;
    pool.parallel_for((edge + step - 1) / step, [&](std::int64_t index, int) {
        const std::int64_t begin = index * step, size = std::min(step, edge - begin);
        if (split_rows) {
            GemmOperand part = a;
            part.data += a.transposed ? begin : begin * a.stride;
            run_tile(size, n, k, part, b, c + begin * c_stride, c_stride, accumulate);
        } else {
            GemmOperand part = b;
            part.data += b.transposed ? begin * b.stride : begin;
            run_tile(m, size, k, a, part, c + begin, c_stride, accumulate);
        }
    });
}

}  // namespace atl::kernels::cpu
