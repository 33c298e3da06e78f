// RMS norm, row by row.

inline float reciprocal_root(float sum_of_squares_value, std::int64_t columns, float epsilon) {
    return 1.0F / __builtin_sqrtf(sum_of_squares_value / static_cast<float>(columns) + epsilon);
}

inline float square_sum(const float* x, std::int64_t columns) {
    return sum_over(
        columns, [=](std::int64_t i) { return load(x + i) * load(x + i); },
        [=](std::int64_t i, std::int64_t n) { return load_some(x + i, n) * load_some(x + i, n); });
}

inline void apply_row(const float* x, const float* weight, float rstd, float* out, std::int64_t columns) {
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c) out[c] = x[c] * rstd * weight[c];
}

void rmsnorm_forward(NormRows rows, const float* x, const float* weight, float epsilon, float* out, float* rstd) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
        const float* const from = x + row * rows.columns;
        rstd[row] = reciprocal_root(square_sum(from, rows.columns), rows.columns, epsilon);
        apply_row(from, weight, rstd[row], out + row * rows.columns, rows.columns);
    }
}

void add_rmsnorm_forward(NormRows rows, const float* x, const float* delta, const float* weight, float epsilon,
                         float* total, float* out, float* rstd) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
        const std::int64_t at = row * rows.columns;
        add(x + at, delta + at, total + at, rows.columns);
        rstd[row] = reciprocal_root(square_sum(total + at, rows.columns), rows.columns, epsilon);
        apply_row(total + at, weight, rstd[row], out + at, rows.columns);
    }
}

void rmsnorm_apply(NormRows rows, const float* x, const float* weight, const float* rstd, float* out) {
    for (std::int64_t row = 0; row < rows.count; ++row) {
        apply_row(x + row * rows.columns, weight, rstd[row], out + row * rows.columns, rows.columns);
    }
}

// With y = x·r·w:  dx = r·w·dy − x·r³/C·Σ(dy·w·x),  dw = Σ_rows dy·x·r.
void rmsnorm_backward(NormRows rows, const float* x, const float* weight, const float* rstd, const float* out_gradient,
                      const float* residual_gradient, float* x_gradient, float* weight_gradient) {
    const std::int64_t columns = rows.columns;
    for (std::int64_t row = 0; row < rows.count; ++row) {
        const float* const xs = x + row * columns;
        const float* const dy = out_gradient + row * columns;
        float* const dx = x_gradient + row * columns;
        const float dot = sum_over(
            columns, [=](std::int64_t i) { return load(dy + i) * load(weight + i) * load(xs + i); },
            [=](std::int64_t i, std::int64_t n) {
                return load_some(dy + i, n) * load_some(weight + i, n) * load_some(xs + i, n);
            });
        const float r = rstd[row];
        const float along_x = r * r * r * dot / static_cast<float>(columns);
        const float* const residual = residual_gradient == nullptr ? nullptr : residual_gradient + row * columns;
#pragma GCC ivdep
        for (std::int64_t c = 0; c < columns; ++c) {
            weight_gradient[c] += dy[c] * xs[c] * r;
            const float through = r * weight[c] * dy[c] - along_x * xs[c];
            dx[c] = residual == nullptr ? through : residual[c] + through;
        }
    }
}
