// Loops with an exponential: SwiGLU and cross entropy, one row at a time.

inline Vec sigmoid(Vec x) {
    return 1.0F / (1.0F + exp(-x));
}

inline Vec swiglu(Vec gate, Vec up) {
    return gate * sigmoid(gate) * up;
}

void swiglu_forward(const float* gate_up, float* out, std::int64_t channels) {
    const float* const up = gate_up + channels;
    std::int64_t i = 0;
    for (; i + kLanes <= channels; i += kLanes) store(out + i, swiglu(load(gate_up + i), load(up + i)));
    if (const std::int64_t n = channels - i; n > 0) {
        store_some(out + i, swiglu(load_some(gate_up + i, n), load_some(up + i, n)), n);
    }
}

struct SwigluGradient {
    Vec gate, up, out;
};

// silu'(g) = s·(1 + g·(1 − s)) with s = sigmoid(g).
inline SwigluGradient swiglu_gradient(Vec gate, Vec up, Vec out_gradient) {
    const Vec s = sigmoid(gate);
    const Vec silu = gate * s;
    return {out_gradient * up * (s + silu * (1.0F - s)), out_gradient * silu, silu * up};
}

void swiglu_backward(const float* gate_up, const float* out_gradient, float* gate_up_gradient, float* out,
                     std::int64_t channels) {
    const float* const up = gate_up + channels;
    float* const up_gradient = gate_up_gradient + channels;
    std::int64_t i = 0;
    for (; i + kLanes <= channels; i += kLanes) {
        const SwigluGradient g = swiglu_gradient(load(gate_up + i), load(up + i), load(out_gradient + i));
        store(gate_up_gradient + i, g.gate);
        store(up_gradient + i, g.up);
        store(out + i, g.out);
    }
    if (const std::int64_t n = channels - i; n > 0) {
        const SwigluGradient g =
            swiglu_gradient(load_some(gate_up + i, n), load_some(up + i, n), load_some(out_gradient + i, n));
        store_some(gate_up_gradient + i, g.gate, n);
        store_some(up_gradient + i, g.up, n);
        store_some(out + i, g.out, n);
    }
}

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

float cross_entropy_forward(const float* logits, std::int64_t vocabulary, std::int64_t target) {
    const float largest = row_max(logits, vocabulary);
    return largest - logits[target] + __builtin_logf(exp_sum<false>(logits, vocabulary, largest));
}

float cross_entropy_backward(float* logits, std::int64_t vocabulary, std::int64_t target, float gradient_scale) {
    const float largest = row_max(logits, vocabulary);
    const float target_logit = logits[target];
    const float total = exp_sum<true>(logits, vocabulary, largest);
    scale(logits, gradient_scale / total, vocabulary);
    logits[target] -= gradient_scale;
    return largest - target_logit + __builtin_logf(total);
}
