#pragma once

#include <cstdint>

namespace atl::tensor {

// Four random numbers that depend on the block's number, its stream and the key alone: Philox 4x32-10 (Salmon, Moraes,
// Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC11) with `block` in the low half of the counter and
// `stream` in the high one.
//
// Always inlined: loops that are compiled once for each instruction set call it, and a copy of its own could be one
// that the machine cannot run.
[[gnu::always_inline]] constexpr void philox(std::uint64_t block, std::uint64_t stream, std::uint64_t key,
                                             std::uint32_t (&words)[4]) {
    words[0] = static_cast<std::uint32_t>(block);
    words[1] = static_cast<std::uint32_t>(block >> 32);
    words[2] = static_cast<std::uint32_t>(stream);
    words[3] = static_cast<std::uint32_t>(stream >> 32);
    auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = 0xD2511F53ULL * words[0], b = 0xCD9E8D57ULL * words[2];
        words[0] = static_cast<std::uint32_t>(b >> 32) ^ words[1] ^ low;
        words[1] = static_cast<std::uint32_t>(b);
        words[2] = static_cast<std::uint32_t>(a >> 32) ^ words[3] ^ high;
        words[3] = static_cast<std::uint32_t>(a);
        low += 0x9E3779B9U;
        high += 0xBB67AE85U;
    }
}

}  // namespace atl::tensor
