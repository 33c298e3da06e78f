// The steps of the optimizers.

void adamw(const AdamWFactors& factors, float* __restrict weights, const float* __restrict gradients,
           float* __restrict first, float* __restrict second, std::int64_t count) {
    const AdamWFactors f = factors;
    for (std::int64_t i = 0; i < count; ++i) {
        const float gradient = gradients[i] * f.gradient_scale;
        const float m = f.beta1 * first[i] + (1.0F - f.beta1) * gradient;
        const float v = f.beta2 * second[i] + (1.0F - f.beta2) * gradient * gradient;
        first[i] = m;
        second[i] = v;
        const float direction = m / (__builtin_sqrtf(v) * f.root_bias + f.epsilon);
        weights[i] -= f.decay * weights[i] + f.step_size * direction;
    }
}

void sgd(float decay, float rate, float momentum, float gradient_scale, float* __restrict weights,
         const float* __restrict gradients, float* __restrict momenta, std::int64_t count) {
    if (momenta == nullptr) {
        for (std::int64_t i = 0; i < count; ++i)
            weights[i] -= decay * weights[i] + rate * gradient_scale * gradients[i];
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        momenta[i] = momentum * momenta[i] + gradient_scale * gradients[i];
        weights[i] -= decay * weights[i] + rate * momenta[i];
    }
}

void nesterov(float momentum, float gradient_scale, float* __restrict direction, const float* __restrict gradients,
              float* __restrict momenta, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        const float gradient = (1.0F - momentum) * (gradient_scale * gradients[i]);
        momenta[i] = momentum * momenta[i] + gradient;
        direction[i] = momentum * momenta[i] + gradient;
    }
}
