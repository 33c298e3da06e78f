#include "trainer/kernels/cpu/gemm.h"

#include <algorithm>
#include <latch>
#include <utility>
#include <vector>

namespace atl::kernels::cpu {
namespace {

// A tile of c: near to square, because of each product with a tile the library packs both operands anew, and large
// enough that widening a block is a small part of it.
constexpr std::int64_t kTileRows = 288;
constexpr std::int64_t kTileRowsUnit = 16;
// The largest block of the right operand: 384 KiB in fp32. Multiples of kBlockUnit.
constexpr std::int64_t kBlockDepth = 384;
constexpr std::int64_t kBlockColumns = 256;
constexpr std::int64_t kBlockUnit = 64;

constexpr std::int64_t count_blocks(std::int64_t size, std::int64_t block) {
    return (size + block - 1) / block;
}

// Equal blocks, but for the last, of at most `largest`, which is a multiple of `unit` like them.
constexpr std::int64_t block_size(std::int64_t size, std::int64_t largest, std::int64_t unit) {
    const std::int64_t blocks = std::max<std::int64_t>(1, count_blocks(size, largest));
    return std::max(unit, count_blocks(count_blocks(size, blocks), unit) * unit);
}

}  // namespace

// Rows [m_begin, m_begin + m) and columns [n_begin, n_begin + n) of c.
struct Gemm::Tile {
    std::int64_t m_begin, m, n_begin, n;
};

Gemm::Gemm(ThreadPool& pool, const SimdKernels& simd, const Sgemm& sgemm)
    : pool_(pool),
      simd_(simd),
      sgemm_(sgemm),
      scratch_(static_cast<std::size_t>(pool.threads() * kBlockDepth * kBlockColumns)) {
    warm_up();
}

// Every thread multiplies tiles of eight shapes in each way, twice over, so that the buffers that the library keeps for
// a thread and the code that it makes are there when memory is judged.
void Gemm::warm_up() {
    const std::vector<float> a(static_cast<std::size_t>(kTileRows * kBlockDepth));
    std::latch all(pool_.threads());
    pool_.parallel_for(pool_.threads(), [&](std::int64_t, int thread) {
        all.arrive_and_wait();  // who waits takes no second turn
        const float* const b = scratch_.data() + thread * kBlockDepth * kBlockColumns;
        std::vector<float> c(static_cast<std::size_t>(kTileRows * kBlockColumns));
        for (int shape = 0; shape < 16; ++shape) {
            const std::int64_t m = (shape & 1) != 0 ? kTileRows : 192, n = (shape & 2) != 0 ? kBlockColumns : 192;
            const std::int64_t k = (shape & 4) != 0 ? kBlockDepth : 256;
            for (const auto& [of_a, of_b] : {std::pair(false, false), std::pair(false, true), std::pair(true, false)}) {
                sgemm_.multiply(m, n, k, {a.data(), of_a ? m : k, of_a}, {b, of_b ? k : n, of_b}, c.data(), n, false);
            }
        }
    });
}

void Gemm::run_tile(const GemmTask& task, const Tile& tile, float* scratch) const {
    const std::int64_t depth = block_size(task.k, kBlockDepth, kBlockUnit);
    const StoredMatrix& matrix = task.b.matrix;
    float* const c = task.c + tile.m_begin * task.c_stride + tile.n_begin;
    for (std::int64_t k = 0; k == 0 || k < task.k; k += depth) {
        const std::int64_t k_count = std::min(depth, task.k - k);
        // As b is stored.
        const MatrixBlock block = task.b.transposed ? MatrixBlock{tile.n_begin, tile.n, k, k_count}
                                                    : MatrixBlock{k, k_count, tile.n_begin, tile.n};
        GemmOperand a = task.a;
        a.data += a.transposed ? k * a.stride + tile.m_begin : tile.m_begin * a.stride + k;
        GemmOperand b{scratch, block.columns, task.b.transposed};
        if (matrix.dtype == tensor::DType::kF32) {
            b.data = static_cast<const float*>(matrix.data) + block.row * matrix.stride + block.column;
            b.stride = matrix.stride;
        } else {
            widen(simd_, matrix, block, scratch);
        }
        sgemm_.multiply(tile.m, tile.n, k_count, a, b, c, task.c_stride, task.accumulate || k > 0);
    }
}

void Gemm::multiply(const GemmTask& task) {
    const std::int64_t rows = block_size(task.m, kTileRows, kTileRowsUnit);
    const std::int64_t columns = block_size(task.n, kBlockColumns, kBlockUnit);
    const std::int64_t across = count_blocks(task.n, columns);
    pool_.parallel_for(count_blocks(task.m, rows) * across, [&](std::int64_t index, int thread) {
        const std::int64_t m = index / across * rows, n = index % across * columns;
        run_tile(task, {m, std::min(rows, task.m - m), n, std::min(columns, task.n - n)},
                 scratch_.data() + thread * kBlockDepth * kBlockColumns);
    });
}

}  // namespace atl::kernels::cpu
