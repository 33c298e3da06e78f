// Random numbers that depend on a key and a counter alone, and rounding with them.

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC11) on kLanes counters at
// a time, which lie in 64-bit lanes so that products keep their high halves.
using Wide = std::uint64_t[kLanes];

inline void philox(Wide& c0, Wide& c1, Wide& c2, Wide& c3, std::uint64_t key) {
    std::uint64_t low = key & 0xffffffffU, high = key >> 32;
    for (int round = 0; round < 10; ++round) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const std::uint64_t a = 0xD2511F53U * c0[lane], b = 0xCD9E8D57U * c2[lane];
            c0[lane] = (b >> 32) ^ c1[lane] ^ low;
            c1[lane] = b & 0xffffffffU;
            c2[lane] = (a >> 32) ^ c3[lane] ^ high;
            c3[lane] = a & 0xffffffffU;
        }
        low = (low + 0x9E3779B9U) & 0xffffffffU;
        high = (high + 0xBB67AE85U) & 0xffffffffU;
    }
}

// Word e % 4 of block e / 4 is element e's: its low half for the first stream, its high half for the second.
void random_halves(std::uint64_t seed, std::int64_t step, std::int64_t begin, std::uint16_t* __restrict first,
                   std::uint16_t* __restrict second, std::int64_t count) {
    constexpr int kElements = 4 * kLanes;
    const std::uint64_t step_bits = static_cast<std::uint64_t>(step);
    for (std::int64_t element = begin - begin % 4; element < begin + count; element += kElements) {
        Wide c0, c1, c2, c3;
        for (int lane = 0; lane < kLanes; ++lane) {
            const std::uint64_t block = static_cast<std::uint64_t>(element) / 4 + static_cast<std::uint64_t>(lane);
            c0[lane] = block & 0xffffffffU;
            c1[lane] = block >> 32;
            c2[lane] = step_bits & 0xffffffffU;
            c3[lane] = step_bits >> 32;
        }
        philox(c0, c1, c2, c3, seed);
        std::uint32_t words[kElements];
        for (int lane = 0; lane < kLanes; ++lane) {
            words[4 * lane] = static_cast<std::uint32_t>(c0[lane]);
            words[4 * lane + 1] = static_cast<std::uint32_t>(c1[lane]);
            words[4 * lane + 2] = static_cast<std::uint32_t>(c2[lane]);
            words[4 * lane + 3] = static_cast<std::uint32_t>(c3[lane]);
        }
        const std::int64_t from = element < begin ? begin - element : 0;
        const std::int64_t left = begin + count - element, to = left < kElements ? left : kElements;
        for (std::int64_t i = from; i < to; ++i) {
            first[element + i - begin] = static_cast<std::uint16_t>(words[i]);
            second[element + i - begin] = static_cast<std::uint16_t>(words[i] >> 16);
        }
    }
}

void round_to_bf16(const float* __restrict from, const std::uint16_t* __restrict random, std::uint16_t* __restrict to,
                   std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::uint16_t>((bits_of(from[i]) + random[i]) >> 16);
}
