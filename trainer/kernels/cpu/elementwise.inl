// Kernels over flat arrays. Those without reductions are left to the compiler's vectoriser.

void add(const float* a, const float* b, float* out, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void scale(float* x, float factor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

// Short runs in fp32 lanes, added up in fp64: the error does not grow with the count.
template <bool kSquare>
double reduce(const float* x, std::int64_t count) {
    constexpr std::int64_t kRun = 32 * kLanes;
    double total = 0.0;
    std::int64_t i = 0;
    for (; i < count; i += kRun) {
        const std::int64_t end = i + kRun < count ? i + kRun : count;
        Vec even{}, odd{};
        std::int64_t j = i;
        for (; j + 2 * kLanes <= end; j += 2 * kLanes) {
            const Vec first = load(x + j), second = load(x + j + kLanes);
            even += kSquare ? first * first : first;
            odd += kSquare ? second * second : second;
        }
        double run = sum_lanes(even + odd);
        for (; j < end; ++j) run += kSquare ? static_cast<double>(x[j]) * x[j] : static_cast<double>(x[j]);
        total += run;
    }
    return total;
}

double sum(const float* x, std::int64_t count) {
    return reduce<false>(x, count);
}

double sum_of_squares(const float* x, std::int64_t count) {
    return reduce<true>(x, count);
}
