#include "trainer/kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>

namespace atl::kernels::cpu {
namespace {

// Multiply-adds that are worth a tile, and the fewest rows or columns of one.
constexpr std::int64_t kTileWork = 24'000'000;
constexpr std::int64_t kTileEdge = 96;
constexpr std::int64_t kTilesMax = 16;

// The largest block of the right operand: half a MiB in fp32. Both are multiples of kBlockUnit.
constexpr std::int64_t kBlockDepth = 512;
constexpr std::int64_t kBlockColumns = 256;
constexpr std::int64_t kBlockUnit = 64;

// OpenBLAS' own threads would fight ours.
void use_one_blas_thread() {
    static const bool done = (openblas_set_num_threads(1), true);
    (void)done;
}

// Equal blocks, but for the last, of at most `largest`.
std::int64_t block_size(std::int64_t size, std::int64_t largest) {
    const std::int64_t blocks = std::max<std::int64_t>(1, (size + largest - 1) / largest);
    return ((size + blocks - 1) / blocks + kBlockUnit - 1) / kBlockUnit * kBlockUnit;
}

void multiply_block(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperand& a, const GemmOperand& b,
                    float* c, std::int64_t c_stride, bool accumulate) {
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
                static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), 1.0F, a.data,
                static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), accumulate ? 1.0F : 0.0F, c,
                static_cast<blasint>(c_stride));
}

}  // namespace

// Rows [m_begin, m_begin + m) and columns [n_begin, n_begin + n) of c.
struct Gemm::Tile {
    std::int64_t m_begin, m, n_begin, n, k;
    const GemmOperand& a;
    const StoredOperand& b;
    float* c;
    std::int64_t c_stride;
    bool accumulate;
};

const char* blas_kernels() {
    return openblas_get_corename();
}

Gemm::Gemm(ThreadPool& pool, const Loops& loops)
    : pool_(pool), loops_(loops), scratch_(static_cast<std::size_t>(pool.threads() * kBlockDepth * kBlockColumns)) {
    use_one_blas_thread();
}

// `block` counts rows and columns as they are stored.
GemmOperand Gemm::block_of(const StoredOperand& b, const MatrixBlock& block, float* scratch) const {
    const StoredMatrix& matrix = b.matrix;
    if (matrix.dtype == tensor::DType::kF32) {
        const auto* const data = static_cast<const float*>(matrix.data);
        return {data + block.row * matrix.stride + block.column, matrix.stride, b.transposed};
    }
    widen(loops_, matrix, block, scratch);
    return {scratch, block.columns, b.transposed};
}

void Gemm::run_tile(const Tile& tile, float* scratch) const {
    const std::int64_t columns = block_size(tile.n, kBlockColumns), depth = block_size(tile.k, kBlockDepth);
    for (std::int64_t n = 0; n < tile.n; n += columns) {
        const std::int64_t n_at = tile.n_begin + n, n_count = std::min(columns, tile.n - n);
        for (std::int64_t k = 0; k == 0 || k < tile.k; k += depth) {
            const std::int64_t k_count = std::min(depth, tile.k - k);
            const MatrixBlock block =
                tile.b.transposed ? MatrixBlock{n_at, n_count, k, k_count} : MatrixBlock{k, k_count, n_at, n_count};
            GemmOperand a = tile.a;
            a.data += a.transposed ? k * a.stride + tile.m_begin : tile.m_begin * a.stride + k;
            multiply_block(tile.m, n_count, k_count, a, block_of(tile.b, block, scratch),
                           tile.c + tile.m_begin * tile.c_stride + n_at, tile.c_stride, tile.accumulate || k > 0);
        }
    }
}

void Gemm::multiply(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOperand& a, const StoredOperand& b,
                    float* c, std::int64_t c_stride, bool accumulate) {
    const bool split_rows = m >= n;
    const std::int64_t edge = split_rows ? m : n;
    const std::int64_t wanted = std::min({m * n * k / kTileWork + 1, edge / kTileEdge, kTilesMax});
    const std::int64_t step = (edge / std::max<std::int64_t>(wanted, 1) + 15) / 16 * 16;
    pool_.parallel_for((edge + step - 1) / step, [&](std::int64_t index, int thread) {
        const std::int64_t begin = index * step, size = std::min(step, edge - begin);
        const Tile tile = {.m_begin = split_rows ? begin : 0,
                           .m = split_rows ? size : m,
                           .n_begin = split_rows ? 0 : begin,
                           .n = split_rows ? n : size,
                           .k = k,
                           .a = a,
                           .b = b,
                           .c = c,
                           .c_stride = c_stride,
                           .accumulate = accumulate};
        run_tile(tile, scratch_.data() + thread * kBlockDepth * kBlockColumns);
    });
}

}  // namespace atl::kernels::cpu
