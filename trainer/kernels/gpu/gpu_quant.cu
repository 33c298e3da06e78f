// Weights that are kept in int8 and NF4, as the matrices that products take.

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/packs.h"
#include "trainer/kernels/operands.h"
#include "trainer/quant/int8.h"
#include "trainer/quant/nf4.h"

namespace atl::kernels::gpu {
namespace {

// As the host's code has it: a compiler here would add to the product before it is rounded.
__device__ float multiply_and_add(float a, float b, float c) {
    return static_cast<float>(static_cast<double>(a) * static_cast<double>(b)) + c;
}

// Codes lie at any address, so they are read a byte at a time: by neighbouring threads, from the same cache lines.
template <class P>
struct DequantizeNf4 {
    const float* head;           // the mean of the blocks' factors, then the magnitudes of the scale blocks
    const std::uint8_t* scales;  // a block's
    const std::uint8_t* codes;
    const float* books;
    P to;
    __device__ void operator()(std::int64_t i) const {
        const std::int64_t block = i / quant::kNf4Block;
        const float magnitude = head[1 + block / quant::kNf4ScaleBlock];
        const float factor = multiply_and_add(books[16 + scales[block]], magnitude, head[0]);
        Values<P::kWidth> values;
        ATOLL_UNROLL
        for (int k = 0; k < P::kWidth; ++k) {
            const unsigned pair = codes[i / 2 + k / 2];
            const bool is_second = P::kWidth == 1 ? i % 2 != 0 : k % 2 != 0;
            values.at[k] = books[is_second ? pair & 15U : pair >> 4] * factor;
        }
        to.store_pack(i, values);
    }
};

template <class P>
struct DequantizeInt8 {
    const float* factors;  // a row's
    const std::int8_t* codes;
    P to;
    std::int64_t columns;
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t at = row * columns + column;
        const float factor = factors[row];
        Values<P::kWidth> values;
        ATOLL_UNROLL
        for (int k = 0; k < P::kWidth; ++k) values.at[k] = static_cast<float>(codes[at + k]) * factor;
        to.store_pack(at, values);
    }
};

}  // namespace

void GpuBackend::dequantize(const Tensor& from, const Tensor& to) {
    check_dequantized(from, to);
    const auto* const storage = static_cast<const std::byte*>(from.data());
    const auto* const floats = reinterpret_cast<const float*>(storage);
    const std::int64_t count = to.element_count(), columns = to.columns();
    if (from.dtype() == tensor::DType::kNf4) {
        const quant::Nf4Layout layout(count);
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(storage);
        const auto* const books = reinterpret_cast<const float*>(books_.data());
        with_flat_packs(count, {to}, [&]<class P>(std::int64_t first, std::int64_t end) {
            launch_packs<P>(compute(), first, end,
                            DequantizeNf4<P>{floats, bytes + layout.scales, bytes + layout.codes, books, P(to)});
        });
        return;
    }
    const quant::Int8Layout layout(to.rows(), columns);
    with_packs(columns, {to}, [&]<class P>() {
        launch_in_rows<P>(
            compute(), to.rows(), columns,
            DequantizeInt8<P>{floats, reinterpret_cast<const std::int8_t*>(storage + layout.codes), P(to), columns});
    });
}

}  // namespace atl::kernels::gpu
