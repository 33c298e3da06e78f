#include "trainer/kernels/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <latch>
#include <span>
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
constexpr std::int64_t kBlockFloats = kBlockDepth * kBlockColumns;
// A block of a and a tile of c.
constexpr std::int64_t kOtherFloats = kTileRows * (kBlockDepth + kBlockColumns);

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

namespace {

struct ProductShape {
    std::int64_t m, n, k;
};

constexpr std::array<ProductShape, 8> kTiles = {{{192, 192, 256},
                                                 {192, 192, kBlockDepth},
                                                 {192, kBlockColumns, 256},
                                                 {192, kBlockColumns, kBlockDepth},
                                                 {kTileRows, 192, 256},
                                                 {kTileRows, 192, kBlockDepth},
                                                 {kTileRows, kBlockColumns, 256},
                                                 {kTileRows, kBlockColumns, kBlockDepth}}};

// Every thread multiplies each shape in each way of forward and backward, so that the buffers that the library
// keeps for a thread and the code that it makes are there when memory is judged.
template <class Element, class Multiply>
void warm_up(ThreadPool& pool, std::span<const ProductShape> shapes, const Multiply& multiply) {
    const std::vector<Element> a(static_cast<std::size_t>(kTileRows * kBlockDepth));
    const std::vector<Element> b(static_cast<std::size_t>(kBlockFloats));
    std::latch all(pool.threads());
    pool.parallel_for(pool.threads(), [&](std::int64_t, int) {
        all.arrive_and_wait();  // who waits takes no second turn
        std::vector<float> c(static_cast<std::size_t>(kTileRows * kBlockColumns));
        for (const auto& shape : shapes) {
            for (const auto& [of_a, of_b] : {std::pair(false, false), std::pair(false, true), std::pair(true, false)})
                multiply(shape, a.data(), of_a, b.data(), of_b, c.data());
        }
    });
}

}  // namespace

Gemm::Gemm(ThreadPool& pool, const SimdKernels& simd, const Sgemm& sgemm, tensor::DType products)
    : pool_(pool), simd_(simd), sgemm_(sgemm), scratch_(static_cast<std::size_t>(pool.threads() * kBlockFloats)) {
    warm_up<float>(pool_, kTiles,
                   [&](const auto& shape, const float* a, bool of_a, const float* b, bool of_b, float* c) {
                       const auto [m, n, k] = shape;
                       sgemm.multiply(m, n, k, {a, of_a ? m : k, of_a}, {b, of_b ? k : n, of_b}, c, n, false);
                   });
    if (products == tensor::DType::kF32) return;
    other_scratch_.resize(static_cast<std::size_t>(pool.threads() * kOtherFloats));
    if (products != tensor::DType::kBF16 || sgemm.multiply_bf16 == nullptr) return;
    warm_up<std::uint16_t>(pool_, std::span(kTiles).last(1),
                           [&](const auto& shape, const auto* a, bool of_a, const auto* b, bool of_b, float* c) {
                               const auto [m, n, k] = shape;
                               for (const auto dtype : {tensor::DType::kF32, tensor::DType::kBF16})
                                   sgemm.multiply_bf16(m, n, k, {a, of_a ? m : k, of_a}, {b, of_b ? k : n, of_b}, c,
                                                       dtype, n, false);
                           });
}

// What a thread has for the blocks of a tile.
struct Gemm::Scratch {
    float* b;            // [kBlockDepth · kBlockColumns]
    float* a = nullptr;  // [kTileRows · kBlockDepth]
    float* c = nullptr;  // [kTileRows · kBlockColumns]
};

namespace {

const std::byte* element(const StoredMatrix& matrix, std::int64_t row, std::int64_t column) {
    return static_cast<const std::byte*>(matrix.data) + tensor::size_bytes(matrix.dtype, row * matrix.stride + column);
}

// To the digits of a format with fewer.
void round_to(tensor::DType dtype, float* values, std::int64_t count) {
    constexpr std::int64_t kRun = 1024;
    std::array<std::uint16_t, kRun> bits;  // NOLINT: filled when it is used
    for (std::int64_t begin = 0; begin < count; begin += kRun) {
        const std::int64_t here = std::min(kRun, count - begin);
        narrow(values + begin, dtype, bits.data(), 0, here);
        widen(dtype, bits.data(), 0, here, values + begin);
    }
}

// Rows and columns of op(operand) as they are stored.
MatrixBlock stored_block(const StoredOperand& operand, const MatrixBlock& block) {
    return operand.transposed ? MatrixBlock{block.column, block.columns, block.row, block.rows} : block;
}

// A block of an operand in fp32: where it lies, or widened into `scratch` and rounded to `digits`.
GemmOperand in_fp32(const SimdKernels& simd, const StoredOperand& operand, const MatrixBlock& of_operand,
                    tensor::DType digits, float* scratch) {
    const StoredMatrix& matrix = operand.matrix;
    const MatrixBlock block = stored_block(operand, of_operand);
    if (matrix.dtype == tensor::DType::kF32 && digits == tensor::DType::kF32)
        return {reinterpret_cast<const float*>(element(matrix, block.row, block.column)), matrix.stride,
                operand.transposed};
    widen(simd, matrix, block, scratch);
    if (digits != tensor::DType::kF32 && digits != matrix.dtype) round_to(digits, scratch, block.rows * block.columns);
    return {scratch, block.columns, operand.transposed};
}

}  // namespace

void Gemm::run_tile(const GemmTask& task, const Tile& tile, const Scratch& scratch) const {
    using tensor::DType;
    const std::int64_t depth = block_size(task.k, kBlockDepth, kBlockUnit);
    const DType digits = task.a.matrix.dtype;
    const std::int64_t at = tile.m_begin * task.c_stride + tile.n_begin;
    const bool is_wide = task.c_dtype == DType::kF32;
    float* const c = is_wide ? static_cast<float*>(task.c) + at : scratch.c;
    const std::int64_t c_stride = is_wide ? task.c_stride : tile.n;
    for (std::int64_t row = 0; !is_wide && task.accumulate && row < tile.m; ++row)
        widen(task.c_dtype, task.c, at + row * task.c_stride, tile.n, c + row * c_stride);
    for (std::int64_t k = 0; k == 0 || k < task.k; k += depth) {
        const std::int64_t k_count = std::min(depth, task.k - k);
        const GemmOperand a = in_fp32(simd_, task.a, {tile.m_begin, tile.m, k, k_count}, digits, scratch.a);
        const GemmOperand b = in_fp32(simd_, task.b, {k, k_count, tile.n_begin, tile.n}, digits, scratch.b);
        sgemm_.multiply(tile.m, tile.n, k_count, a, b, c, c_stride, task.accumulate || k > 0);
    }
    for (std::int64_t row = 0; !is_wide && row < tile.m; ++row)
        narrow(c + row * c_stride, task.c_dtype, task.c, at + row * task.c_stride, tile.n);
}

void Gemm::run_tile_in_bf16(const GemmTask& task, const Tile& tile) const {
    const auto operand = [](const StoredOperand& stored, const MatrixBlock& of_operand) {
        const MatrixBlock block = stored_block(stored, of_operand);
        return Bf16Operand{element(stored.matrix, block.row, block.column), stored.matrix.stride, stored.transposed};
    };
    auto* const c =
        static_cast<std::byte*>(task.c) + tensor::size_bytes(task.c_dtype, tile.m_begin * task.c_stride + tile.n_begin);
    sgemm_.multiply_bf16(tile.m, tile.n, task.k, operand(task.a, {tile.m_begin, tile.m, 0, task.k}),
                         operand(task.b, {0, task.k, tile.n_begin, tile.n}), c, task.c_dtype, task.c_stride,
                         task.accumulate);
}

void Gemm::multiply(const GemmTask& task) {
    using tensor::DType;
    const std::int64_t rows = block_size(task.m, kTileRows, kTileRowsUnit);
    const std::int64_t columns = block_size(task.n, kBlockColumns, kBlockUnit);
    const std::int64_t across = count_blocks(task.n, columns);
    const bool is_native = sgemm_.multiply_bf16 != nullptr && task.k > 0 && task.a.matrix.dtype == DType::kBF16 &&
                           task.b.matrix.dtype == DType::kBF16 && task.c_dtype != DType::kF16;
    if (other_scratch_.empty() && !is_native && (task.a.matrix.dtype != DType::kF32 || task.c_dtype != DType::kF32))
        other_scratch_.resize(static_cast<std::size_t>(pool_.threads() * kOtherFloats));
    pool_.parallel_for(count_blocks(task.m, rows) * across, [&](std::int64_t index, int thread) {
        const std::int64_t m = index / across * rows, n = index % across * columns;
        const Tile tile{m, std::min(rows, task.m - m), n, std::min(columns, task.n - n)};
        if (is_native) return run_tile_in_bf16(task, tile);
        Scratch scratch{scratch_.data() + thread * kBlockFloats};
        if (!other_scratch_.empty()) {
            scratch.a = other_scratch_.data() + thread * kOtherFloats;
            scratch.c = scratch.a + kTileRows * kBlockDepth;
        }
        run_tile(task, tile, scratch);
    });
}

}  // namespace atl::kernels::cpu
