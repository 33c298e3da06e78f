// Rotary positions, one row at a time.

void rope(float* row, const float* table, std::int64_t heads, std::int64_t head_channels, float direction) {
    const std::int64_t half = head_channels / 2;
    const float* const cosines = table;
    const float* const sines = table + half;
    for (std::int64_t head = 0; head < heads; ++head) {
        float* const first = row + head * head_channels;
        float* const second = first + half;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < half; ++i) {
            const float a = first[i], b = second[i], sine = direction * sines[i];
            first[i] = a * cosines[i] - b * sine;
            second[i] = b * cosines[i] + a * sine;
        }
    }
}
