// SwiGLU, one row at a time, and ReLU.

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

void bias_relu(float* x, const float* bias, std::int64_t columns) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c) {
        const float sum = x[c] + bias[c];
        x[c] = sum <= 0.0F ? 0.0F : sum;  // NaN stays
    }
}

void relu_backward(const float* out, float* gradient, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) gradient[i] = out[i] > 0.0F ? gradient[i] : 0.0F;
}
