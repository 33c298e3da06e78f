#include "trainer/kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shared/numeric/cpu_features.h"
#include "trainer/kernels/cpu/tile.h"
#include "trainer/kernels/cpu/widen.h"
#include "trainer/kernels/host_timed_event.h"
#include "trainer/kernels/operands.h"

namespace atl::kernels::cpu {
namespace {

using tensor::DType;

constexpr std::int64_t kHugePageBytes = 2 << 20;

void check_same_count(const Tensor& a, const Tensor& b) {
    check(a.contiguous() && b.contiguous() && a.element_count() == b.element_count(), "tensors of unequal size");
}

}  // namespace

CpuBackend::CpuBackend(const SimdKernels& simd, const Sgemm& sgemm, int threads, DType products)
    : simd_(simd), sgemm_(sgemm), products_(products), pool_(threads), gemm_(pool_, simd, sgemm, products) {}

std::shared_ptr<const TimedEvent> CpuBackend::record_timed(Stream) {
    const auto event = std::make_shared<HostTimedEvent>();
    event->happen();
    return event;
}

std::string CpuBackend::name() const {
    return kernels_name(simd_, sgemm_, products_);
}

std::string kernels_name(const SimdKernels& simd, const Sgemm& sgemm, DType products) {
    const bool is_native = products == DType::kBF16 && sgemm.multiply_bf16 != nullptr;
    return std::string("cpu (") + simd.name + ", " + sgemm.name() +
           (is_native ? ", " + std::string(numeric::fast_bf16()) : "") + ")";
}

// Mapped, not malloc'ed: aligned to pages, zero-cost until touched, and huge pages where the system grants them.
Result<tensor::Memory> CpuBackend::allocate(Space, std::int64_t bytes) {
    const std::int64_t size = std::max<std::int64_t>(bytes, 1);
    void* const data =
        ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return Error{
            ErrorCode::kResourceExhausted, "cannot allocate " + std::to_string(bytes) + " bytes of memory", {}};
    }
    if (size >= kHugePageBytes) ::madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);
    return tensor::Memory(static_cast<std::byte*>(data), size, [](std::byte* memory, std::int64_t count) {
        ::munmap(memory, static_cast<std::size_t>(count));
    });
}

void CpuBackend::copy(const Tensor& from, const Tensor& to) {
    check_same_count(from, to);
    check(from.dtype() == to.dtype(), "copy does not convert");
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.byte_count()));
}

void CpuBackend::copy_from_host(const void* from, const Tensor& to) {
    std::memcpy(to.data(), from, static_cast<std::size_t>(to.byte_count()));
}

void CpuBackend::copy_to_host(const Tensor& from, void* to) {
    std::memcpy(to, from.data(), static_cast<std::size_t>(from.byte_count()));
}

void CpuBackend::zero(const Tensor& x) {
    check(x.contiguous(), "zero takes contiguous tensors");
    std::memset(x.data(), 0, static_cast<std::size_t>(x.byte_count()));
}

void CpuBackend::matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                        bool accumulate) {
    const auto [m, n, k] = matmul_shape(a, transpose_a, b, transpose_b, c);
    if (m == 0 || n == 0) return;
    gemm_.multiply({.m = m,
                    .n = n,
                    .k = k,
                    .a = {{a.data(), a.dtype(), a.row_stride(), a.rows()}, transpose_a},
                    .b = {{b.data(), b.dtype(), b.row_stride(), b.rows()}, transpose_b},
                    .c = c.data(),
                    .c_dtype = c.dtype(),
                    .c_stride = c.row_stride(),
                    .accumulate = accumulate});
}

void CpuBackend::add(const Tensor& a, const Tensor& b, const Tensor& out) {
    check_same_count(a, b);
    check_same_count(a, out);
    for_ranges(a.element_count(), kTileElements, [&](auto begin, auto end) {
        const std::int64_t count = end - begin;
        const Tile x = Tile::read(a, begin, count), y = Tile::read(b, begin, count);
        const Tile z = Tile::write(out, begin, count);
        simd_.add(x.data(), y.data(), z.data(), count);
    });
}

void CpuBackend::scale(const Tensor& x, float factor) {
    for_ranges(x.element_count(), kTileElements, [&](auto begin, auto end) {
        simd_.scale(Tile::update(x, begin, end - begin).data(), factor, end - begin);
    });
}

void CpuBackend::divide_by_norm(const Tensor& x, const Tensor& squares, float norm_min) {
    scale(x, static_cast<float>(1.0 / std::max(std::sqrt(*squares.f64()), static_cast<double>(norm_min))));
}

template <class Part>
void CpuBackend::reduce(const Tensor& x, Part part, const Tensor& into, bool accumulate) {
    check(x.contiguous(), "a sum takes contiguous tensors");
    const std::int64_t count = x.element_count();
    partial_sums_.assign(static_cast<std::size_t>((count + kTileElements - 1) / kTileElements), 0.0);
    for_ranges(count, kTileElements, [&](auto begin, auto end) {
        const Tile part_of_x = Tile::read(x, begin, end - begin);
        partial_sums_[static_cast<std::size_t>(begin / kTileElements)] = part(part_of_x.data(), end - begin);
    });
    double total = 0.0;
    for (const double partial : partial_sums_) total += partial;
    *into.f64() = accumulate ? *into.f64() + total : total;
}

void CpuBackend::sum(const Tensor& x, const Tensor& into, bool accumulate) {
    reduce(x, simd_.sum, into, accumulate);
}

void CpuBackend::sum_of_squares(std::span<const Tensor> all, const Tensor& into, bool accumulate) {
    if (!accumulate) *into.f64() = 0.0;
    for (const Tensor& x : all) reduce(x, simd_.sum_of_squares, into, true);
}

void CpuBackend::sum_pieces(const Tensor& pieces, const Tensor& sum) {
    constexpr std::int64_t kElements = 4096;  // of each piece at a time, so that they stay in the cache
    const std::int64_t count = sum.element_count();
    check(count > 0 && pieces.element_count() % count == 0, "sum_pieces takes pieces of equal length");
    const std::int64_t piece_count = pieces.element_count() / count;
    const bool is_wide = pieces.dtype() == DType::kF32;
    for_ranges(count, kElements, [&](auto begin, auto end) {
        std::vector<float> widened(is_wide ? 0 : static_cast<std::size_t>(piece_count * kElements));
        for (std::int64_t piece = 0; !is_wide && piece < piece_count; ++piece)
            widen(pieces.dtype(), pieces.data(), piece * count + begin, end - begin,
                  widened.data() + piece * kElements);
        float* const first = is_wide ? pieces.f32() + begin : widened.data();
        const std::int64_t apart = is_wide ? count : kElements;
        for (std::int64_t stride = 1; stride < piece_count; stride *= 2) {
            for (std::int64_t piece = 0; piece + stride < piece_count; piece += 2 * stride) {
                float* const into = first + piece * apart;
                simd_.add(into, first + (piece + stride) * apart, into, end - begin);
            }
        }
        std::copy_n(first, end - begin, sum.f32() + begin);
    });
}

void CpuBackend::convert(const Tensor& from, const Tensor& to) {
    check_same_count(from, to);
    if (from.dtype() == to.dtype()) return copy(from, to);
    const bool widens = to.dtype() == DType::kF32;
    const DType half = widens ? from.dtype() : to.dtype();
    check((widens || from.dtype() == DType::kF32) && (half == DType::kF16 || half == DType::kBF16),
          "convert goes between fp32 and fp16 or bf16");
    for_ranges(from.element_count(), kTileElements, [&](auto begin, auto end) {
        if (widens) {
            widen(half, from.data(), begin, end - begin, to.f32() + begin);
        } else {
            narrow(from.f32() + begin, half, to.data(), begin, end - begin);
        }
    });
}

void CpuBackend::dequantize(const Tensor& from, const Tensor& to) {
    check_dequantized(from, to);
    const std::int64_t columns = to.columns();
    const StoredMatrix matrix{from.data(), from.dtype(), columns, from.rows()};
    for_ranges(to.rows(), rows_per_tile(columns), [&](auto begin, auto end) {
        std::vector<float> values(static_cast<std::size_t>(columns));
        for (std::int64_t row = begin; row < end; ++row) {
            const bool is_wide = to.dtype() == DType::kF32;
            float* const into = is_wide ? to.f32() + row * columns : values.data();
            widen(simd_, matrix, {row, 1, 0, columns}, into);
            if (!is_wide) narrow(into, to.dtype(), to.data(), row * columns, columns);
        }
    });
}

const float* CpuBackend::widen_vector(const Tensor& vector, std::int64_t channels, std::vector<float>& widened) {
    check_count(vector, channels);
    if (vector.dtype() == DType::kF32) return vector.f32();
    widened.resize(static_cast<std::size_t>(channels));
    widen(vector.dtype(), vector.data(), 0, channels, widened.data());
    return widened.data();
}

}  // namespace atl::kernels::cpu
