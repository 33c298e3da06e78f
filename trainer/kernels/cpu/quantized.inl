// Decoding of quantised weights. Each element is one product, so the bits are the same for every instruction set.

void int8_to_f32(const std::int8_t* __restrict from, float factor, float* __restrict to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * factor;
}

void nf4_to_f32(const std::uint8_t* __restrict codes, std::int64_t begin, const float* __restrict values,
                float* __restrict to, std::int64_t count) {
    std::int64_t i = 0;
    if (begin % 2 != 0 && count > 0) to[i++] = values[codes[begin / 2] & 15];
#if defined(__AVX512F__)
    const __m512 table = _mm512_loadu_ps(values);
    const __m128i low_bits = _mm_set1_epi8(15);
    for (; i + 16 <= count; i += 16) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(codes + (begin + i) / 2));
        const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), low_bits);
        const __m128i indices = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, low_bits));
        _mm512_storeu_ps(to + i, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(indices), table));
    }
#endif
    for (; i < count; ++i) {
        const std::int64_t at = begin + i;
        to[i] = values[at % 2 == 0 ? codes[at / 2] >> 4 : codes[at / 2] & 15];
    }
}
