// Biases: adding one to a row, and the gradient of one.

void add_bias(const float* x, const float* bias, const float* residual, float* out, std::int64_t columns) {
    if (residual == nullptr) return add(x, bias, out, columns);
#pragma GCC ivdep
    for (std::int64_t c = 0; c < columns; ++c) out[c] = (x[c] + bias[c]) + residual[c];
}

// Adds to out. Runs of 32 rows are added up first, so that the error does not grow with the rows.
void sum_rows(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, float* out) {
    constexpr std::int64_t kRun = 32;
    for (std::int64_t c = 0; c < columns; c += kLanes) {
        const std::int64_t lanes = columns - c;
        Vec total{};
        for (std::int64_t first = 0; first < rows; first += kRun) {
            const std::int64_t end = first + kRun < rows ? first + kRun : rows;
            Vec run{};
            for (std::int64_t row = first; row < end; ++row) {
                const float* const from = x + row * stride + c;
                run += lanes >= kLanes ? load(from) : load_some(from, lanes);
            }
            total += run;
        }
        if (lanes >= kLanes) {
            store(out + c, load(out + c) + total);
        } else {
            store_some(out + c, load_some(out + c, lanes) + total, lanes);
        }
    }
}
