// Layer norm, row by row. moments [N, 2]: each row's mean and 1/sqrt(variance + epsilon).

inline void layernorm_row(const float* x, const float* weight, const float* bias, const float* moments, float* out,
                          std::int64_t columns) {
    const float mean = moments[0], rstd = moments[1];
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c) out[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

// The variance is that of the differences from the mean: Σx² − C·mean² would lose digits.
inline void row_moments(const float* x, std::int64_t columns, float epsilon, float* moments) {
    const float total = sum_over(
        columns, [=](std::int64_t i) { return load(x + i); },
        [=](std::int64_t i, std::int64_t n) { return load_some(x + i, n); });
    const float mean = total / static_cast<float>(columns);
    const float squares = sum_over(
        columns,
        [=](std::int64_t i) {
            const Vec delta = load(x + i) - mean;
            return delta * delta;
        },
        [=](std::int64_t i, std::int64_t n) {
            const Vec delta = load_some(x + i, n, mean) - mean;
            return delta * delta;
        });
    moments[0] = mean;
    moments[1] = reciprocal_root(squares, columns, epsilon);
}

void layernorm_forward(NormRows rows, const float* x, const float* weight, const float* bias, float epsilon, float* out,
                       float* moments) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
        const std::int64_t at = row * rows.columns;
        row_moments(x + at, rows.columns, epsilon, moments + 2 * row);
        layernorm_row(x + at, weight, bias, moments + 2 * row, out + at, rows.columns);
    }
}

void layernorm_apply(NormRows rows, const float* x, const float* weight, const float* bias, const float* moments,
                     float* out) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
        const std::int64_t at = row * rows.columns;
        layernorm_row(x + at, weight, bias, moments + 2 * row, out + at, rows.columns);
    }
}

// With n = (x − m)·r, y = n·w + b, g = w·dy:  dx = r·(g − mean(g) − n·mean(g·n)),  dw = Σ_rows dy·n,  db = Σ_rows dy.
void layernorm_backward(NormRows rows, const float* x, const float* weight, const float* moments,
                        const float* out_gradient, const float* residual_gradient, float* x_gradient,
                        float* weight_gradient, float* bias_gradient) {
    const std::int64_t columns = rows.columns;
    const float share = 1.0F / static_cast<float>(columns);
    for (std::int64_t row = 0; row < rows.count; ++row) {
        const float* const xs = x + row * columns;
        const float* const dy = out_gradient + row * columns;
        float* const dx = x_gradient + row * columns;
        const float mean = moments[2 * row], r = moments[2 * row + 1];
        const float sum_g = sum_over(
            columns, [=](std::int64_t i) { return load(dy + i) * load(weight + i); },
            [=](std::int64_t i, std::int64_t n) { return load_some(dy + i, n) * load_some(weight + i, n); });
        const float sum_gn = sum_over(
            columns, [=](std::int64_t i) { return load(dy + i) * load(weight + i) * ((load(xs + i) - mean) * r); },
            [=](std::int64_t i, std::int64_t n) {
                return load_some(dy + i, n) * load_some(weight + i, n) * ((load_some(xs + i, n) - mean) * r);
            });
        const float mean_g = sum_g * share, mean_gn = sum_gn * share;
        const float* const residual = residual_gradient == nullptr ? nullptr : residual_gradient + row * columns;
#pragma GCC ivdep
        for (std::int64_t c = 0; c < columns; ++c) {
            const float n = (xs[c] - mean) * r;
            weight_gradient[c] += dy[c] * n;
            bias_gradient[c] += dy[c];
            const float through = r * (weight[c] * dy[c] - mean_g - n * mean_gn);
            dx[c] = residual == nullptr ? through : residual[c] + through;
        }
    }
}
