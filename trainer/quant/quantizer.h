#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/quant/nf4.h"

namespace atl::quant {

enum class Format : std::uint8_t { kInt8, kNf4 };

// Elements [begin, begin + out.size()) of a matrix, in row-major order.
void dequantize(Format format, std::span<const std::byte> storage, std::int64_t rows, std::int64_t columns,
                std::int64_t begin, std::span<float> out);

// Quantises one matrix whose rows come in order.
class Quantizer {
  public:
    // Hands over the storage as it is made, every byte once.
    Quantizer(Format format, std::int64_t rows, std::int64_t columns, TakeBytes take);
    // Collects it for finish().
    Quantizer(Format format, std::int64_t rows, std::int64_t columns);
    Quantizer(const Quantizer&) = delete;
    Quantizer& operator=(const Quantizer&) = delete;

    void append(std::span<const float> rows);  // whole rows
    std::vector<std::byte> finish();           // after the last row, once: the storage, if it was collected

  private:
    std::int64_t rows_, columns_;
    std::int64_t done_ = 0;           // rows
    std::vector<std::byte> storage_;  // collected
    TakeBytes take_;
    std::optional<Nf4Quantizer> nf4_;  // absent: int8
};

}  // namespace atl::quant
