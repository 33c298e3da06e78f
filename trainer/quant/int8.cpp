#include "trainer/quant/int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shared/base/check.h"

namespace atl::quant {
namespace {

constexpr float kLargest = 127.0F;

void quantize_row(std::span<const float> row, std::byte* factor, std::byte* codes) {
    float magnitude = 0;
    for (const float value : row) magnitude = std::max(magnitude, std::abs(value));
    const float stored = magnitude / kLargest, inverse = magnitude > 0 ? kLargest / magnitude : 0.0F;
    std::memcpy(factor, &stored, sizeof stored);
    for (std::size_t i = 0; i < row.size(); ++i) {
        codes[i] = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(row[i] * inverse)));
    }
}

}  // namespace

Int8Layout::Int8Layout(std::int64_t rows, std::int64_t columns)
    : codes(4 * rows), size((codes + rows * columns + kStorageBytes - 1) / kStorageBytes * kStorageBytes) {}

void quantize_int8(std::int64_t columns, std::span<const float> rows, std::span<std::byte> storage) {
    const std::int64_t count = std::ssize(rows) / columns;
    const Int8Layout layout(count, columns);
    check(count * columns == std::ssize(rows), "int8: whole rows only");
    check(std::ssize(storage) == layout.size, "int8: storage of another size");
    for (std::int64_t row = 0; row < count; ++row) {
        quantize_row(rows.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns)),
                     storage.data() + 4 * row, storage.data() + layout.codes + row * columns);
    }
}

void dequantize_int8(std::span<const std::byte> storage, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                     std::span<float> out) {
    const Int8Layout layout(rows, columns);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::int64_t at = begin + static_cast<std::int64_t>(i);
        float factor = 0;
        std::memcpy(&factor, storage.data() + 4 * (at / columns), sizeof factor);
        const auto code = static_cast<std::int8_t>(storage[static_cast<std::size_t>(layout.codes + at)]);
        out[i] = static_cast<float>(code) * factor;
    }
}

}  // namespace atl::quant
