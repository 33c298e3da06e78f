// What cross entropy and attention take of a softmax.

inline float row_max(const float* x, std::int64_t count) {
    Vec a = splat(-__builtin_inff()), b = a;
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
        a = max(a, load(x + i));
        b = max(b, load(x + i + kLanes));
    }
    float largest = max_lanes(max(a, b));
    for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

// Σ exp(x − shift); with kKeep each x becomes its term. x[count …] is not touched.
template <bool kKeep, class Pointer>
inline float exp_sum(Pointer x, std::int64_t count, float shift) {
    const auto term = [=](std::int64_t i) {
        const Vec value = exp(load(x + i) - shift);
        if constexpr (kKeep) store(x + i, value);
        return value;
    };
    Vec parts[2]{};
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
        parts[0] += term(i);
        parts[1] += term(i + kLanes);
    }
    for (; i + kLanes <= count; i += kLanes) parts[0] += term(i);
    float tail = 0.0F;
    if (const std::int64_t n = count - i; n > 0) {
        const Vec value = exp(load_some(x + i, n) - shift);
        if constexpr (kKeep) store_some(x + i, value, n);
        for (std::int64_t lane = 0; lane < n; ++lane) tail += value[lane];
    }
    return sum_lanes(parts[0] + parts[1]) + tail;
}
