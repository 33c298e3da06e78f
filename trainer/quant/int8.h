#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/quant/nf4.h"

// int8 weights with one factor an output channel (a row of the [out, in] matrix): the largest magnitude of the row is
// 127, rounding is to nearest even (as LLM.int8() quantises weights: Dettmers et al., arXiv:2208.07339).
namespace atl::quant {

// Bytes from the start of a matrix' storage: fp32 factors [rows], then int8 [rows, columns].
struct Int8Layout {
    Int8Layout(std::int64_t rows, std::int64_t columns);
    std::int64_t codes;
    std::int64_t size;  // a multiple of kStorageBytes
};

// Quantises whole rows. `storage` is that of a matrix of these rows alone.
void quantize_int8(std::int64_t columns, std::span<const float> rows, std::span<std::byte> storage);

// Elements [begin, begin + out.size()) of the matrix, in row-major order.
void dequantize_int8(std::span<const std::byte> storage, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                     std::span<float> out);

}  // namespace atl::quant
