#pragma once

#include <cstddef>

namespace atl::tokenizer {

// The most bytes that a tokenizer.json's normalizer or decoder may make of a text of `text_bytes`. The file is input,
// too: steps that double a text each would fill the memory. Those of real tokenizers stay far below.
constexpr std::size_t grown_bytes_max(std::size_t text_bytes) {
    constexpr std::size_t kGrowthMax = 64;
    constexpr std::size_t kSmallTextBytes = 1U << 20;
    return kSmallTextBytes + kGrowthMax * text_bytes;
}

}  // namespace atl::tokenizer
