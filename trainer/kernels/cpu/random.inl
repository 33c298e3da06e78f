// Random numbers that depend on a key and a counter alone, and rounding with them.

// Word e % 4 of block e / 4 is element e's: its low half for the first stream, its high half for the second.
void random_halves(std::uint64_t seed, std::int64_t step, std::int64_t begin, std::uint16_t* __restrict first,
                   std::uint16_t* __restrict second, std::int64_t count) {
    constexpr int kElements = 4 * kLanes;
    for (std::int64_t element = begin - begin % 4; element < begin + count; element += kElements) {
        std::uint32_t words[kLanes][4];
        for (int lane = 0; lane < kLanes; ++lane) {
            const auto block = static_cast<std::uint64_t>(element / 4 + lane);
            tensor::philox(block, static_cast<std::uint64_t>(step), seed, words[lane]);
        }
        const std::int64_t from = element < begin ? begin - element : 0;
        const std::int64_t left = begin + count - element, to = left < kElements ? left : kElements;
        for (std::int64_t i = from; i < to; ++i) {
            const std::uint32_t word = words[i / 4][i % 4];
            first[element + i - begin] = static_cast<std::uint16_t>(word);
            second[element + i - begin] = static_cast<std::uint16_t>(word >> 16);
        }
    }
}

void round_to_bf16(const float* __restrict from, const std::uint16_t* __restrict random, std::uint16_t* __restrict to,
                   std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        to[i] = static_cast<std::uint16_t>((__builtin_bit_cast(std::uint32_t, from[i]) + random[i]) >> 16);
}
