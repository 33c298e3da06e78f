// Causal attention of one key/value head, in blocks of query rows. The five products run on one small register-blocked
// kernel over packed operands that fit the caches; only the block's rows of probabilities exist at a time.

constexpr int kTileRows = kLanes >= 16 ? 8 : 4;
constexpr std::int64_t kPanel = 2 * kLanes;  // columns of a tile, keys of a packed panel
constexpr std::int64_t kQueryBlock = 32;

inline std::int64_t round_up(std::int64_t count, std::int64_t step) {
    return (count + step - 1) / step * step;
}

// c [Rows, Vectors·lanes] (+)= a [Rows, inner] · b [inner, Vectors·lanes].
template <int kRows, int kVectors>
inline void tile(std::int64_t inner, const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
                 std::int64_t b_row, float* c, std::int64_t c_row, bool accumulate) {
    Vec sums[kRows][kVectors];
    for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kVectors; ++j) sums[i][j] = accumulate ? load(c + i * c_row + j * kLanes) : Vec{};
    }
    for (std::int64_t k = 0; k < inner; ++k) {
        Vec right[kVectors];
        for (int j = 0; j < kVectors; ++j) right[j] = load(b + k * b_row + j * kLanes);
        for (int i = 0; i < kRows; ++i) {
            const Vec left = splat(a[i * a_row + k * a_column]);
            for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kVectors; ++j) store(c + i * c_row + j * kLanes, sums[i][j]);
    }
}

struct Matrix {
    const float* data;
    std::int64_t row;     // floats from one row to the next
    std::int64_t column;  // floats from one column to the next
};

template <int kVectors>
inline void column_of_tiles(std::int64_t rows, std::int64_t inner, Matrix a, const float* b, std::int64_t b_row,
                            float* c, std::int64_t c_row, bool accumulate) {
    std::int64_t i = 0;
    for (; i + kTileRows <= rows; i += kTileRows) {
        tile<kTileRows, kVectors>(inner, a.data + i * a.row, a.row, a.column, b, b_row, c + i * c_row, c_row,
                                  accumulate);
    }
    for (; i < rows; ++i) {
        tile<1, kVectors>(inner, a.data + i * a.row, a.row, a.column, b, b_row, c + i * c_row, c_row, accumulate);
    }
}

// c [rows, columns] (+)= a [rows, inner] · b [inner, columns]; columns is a multiple of kLanes.
inline void product(std::int64_t rows, std::int64_t columns, std::int64_t inner, Matrix a, const float* b,
                    std::int64_t b_row, float* c, std::int64_t c_row, bool accumulate) {
    std::int64_t j = 0;
    for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
        column_of_tiles<2>(rows, inner, a, b + j, b_row, c + j, c_row, accumulate);
    }
    if (j < columns) column_of_tiles<1>(rows, inner, a, b + j, b_row, c + j, c_row, accumulate);
}

// from [count, D] strided -> [panel][D][kPanel], the last panel filled with zeros: its transpose in panels.
inline void pack_transposed(const float* from, std::int64_t stride, std::int64_t count, std::int64_t channels,
                            float* to) {
    for (std::int64_t panel = 0; panel < count; panel += kPanel, to += channels * kPanel) {
        const std::int64_t width = count - panel < kPanel ? count - panel : kPanel;
        for (std::int64_t c = 0; c < channels; ++c) {
            for (std::int64_t j = 0; j < kPanel; ++j) {
                to[c * kPanel + j] = j < width ? from[(panel + j) * stride + c] : 0.0F;
            }
        }
    }
}

// from [count, D] strided -> [count, padded], filled with zeros.
inline void pack(const float* from, std::int64_t stride, std::int64_t count, std::int64_t channels, std::int64_t padded,
                 float* to) {
    for (std::int64_t row = 0; row < count; ++row, to += padded) {
        for (std::int64_t c = 0; c < channels; ++c) to[c] = from[row * stride + c];
        for (std::int64_t c = channels; c < padded; ++c) to[c] = 0.0F;
    }
}

inline void unpack(const float* from, std::int64_t padded, std::int64_t count, std::int64_t channels, float* to,
                   std::int64_t stride) {
    for (std::int64_t row = 0; row < count; ++row) {
        for (std::int64_t c = 0; c < channels; ++c) to[row * stride + c] = from[row * padded + c];
    }
}

inline void clear(float* x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) x[i] = 0.0F;
}

// The scratch of a task, cut into its arrays. Kp: keys rounded up to panels; Dp: channels rounded up to lanes.
struct AttentionScratch {
    std::int64_t padded_keys, padded_channels;
    float *keys_transposed, *values_transposed;  // [Kp / kPanel][D][kPanel]
    float *keys, *values;                        // [Kp, Dp]
    float *scores, *score_gradients;             // [kQueryBlock, Kp]
    float *block, *queries, *out_gradient;       // [kQueryBlock, Dp]
    float *key_gradient, *value_gradient;        // [Kp, Dp]
    std::int64_t floats;                         // of all
};

inline AttentionScratch allocate_scratch(std::int64_t keys, std::int64_t channels, bool backward, float* from) {
    AttentionScratch s{};
    s.padded_keys = round_up(keys, kPanel);
    s.padded_channels = round_up(channels, kLanes);
    const std::int64_t per_key = s.padded_keys * s.padded_channels, per_query = kQueryBlock * s.padded_channels;
    const auto take = [&](float*& array, std::int64_t count) {
        array = from == nullptr ? nullptr : from + s.floats;
        s.floats += round_up(count, 16);
    };
    take(s.keys_transposed, per_key);
    take(s.values, per_key);
    take(s.scores, kQueryBlock * s.padded_keys);
    take(s.block, per_query);
    if (!backward) return s;
    take(s.values_transposed, per_key);
    take(s.keys, per_key);
    take(s.score_gradients, kQueryBlock * s.padded_keys);
    take(s.queries, per_query);
    take(s.out_gradient, per_query);
    take(s.key_gradient, per_key);
    take(s.value_gradient, per_key);
    return s;
}

std::int64_t attention_scratch_floats(std::int64_t keys, std::int64_t head_channels, bool backward) {
    return allocate_scratch(keys, head_channels, backward, nullptr).floats;
}

// Rows [first, first + rows) of one head and the keys that any of them sees, rounded out to panels.
struct QueryBlock {
    std::int64_t first, rows, key_begin, key_end;
};

inline std::int64_t first_key(const AttentionTask& task, std::int64_t query) {
    return task.segment_starts == nullptr ? 0 : task.segment_starts[query];
}

inline std::int64_t end_key(const AttentionTask& task, std::int64_t query) {
    return task.key_count - task.query_count + query + 1;
}

inline QueryBlock query_block(const AttentionTask& task, std::int64_t first) {
    const std::int64_t left = task.query_count - first;
    const std::int64_t rows = left < kQueryBlock ? left : kQueryBlock;
    return {first, rows, first_key(task, first) / kPanel * kPanel,
            round_up(end_key(task, first + rows - 1), kPanel)};
}

// scores [rows, keys of the block] = a [rows, D] · (keys or values)ᵀ
inline void multiply_transposed(const QueryBlock& block, std::int64_t channels, Matrix a, const float* panels,
                                float* scores, std::int64_t scores_row) {
    for (std::int64_t key = block.key_begin; key < block.key_end; key += kPanel) {
        product(block.rows, kPanel, channels, a, panels + key * channels, kPanel, scores + key, scores_row, false);
    }
}

inline float root_scale(const AttentionTask& task) {
    return 1.0F / __builtin_sqrtf(static_cast<float>(task.head_channels));
}

inline void clear_unseen(float* row, std::int64_t begin, std::int64_t end, const QueryBlock& block) {
    clear(row + block.key_begin, begin - block.key_begin);
    clear(row + end, block.key_end - end);
}

// Scores become probabilities, 0 where a query may not look. Returns log Σ exp of the scaled scores.
inline float softmax_row(float* row, std::int64_t begin, std::int64_t end, const QueryBlock& block, float factor) {
    for (std::int64_t key = begin; key < end; ++key) row[key] *= factor;
    const float largest = row_max(row + begin, end - begin);
    const float total = exp_sum<true>(row + begin, end - begin, largest);
    scale(row + begin, 1.0F / total, end - begin);
    clear_unseen(row, begin, end, block);
    return largest + __builtin_logf(total);
}

void attention_forward(const AttentionTask& task) {
    const std::int64_t channels = task.head_channels;
    const AttentionScratch s = allocate_scratch(task.key_count, channels, false, task.scratch);
    pack_transposed(task.keys, task.kv_stride, task.key_count, channels, s.keys_transposed);
    pack(task.values, task.kv_stride, task.key_count, channels, s.padded_channels, s.values);
    clear(s.values + task.key_count * s.padded_channels, (s.padded_keys - task.key_count) * s.padded_channels);
    const float factor = root_scale(task);
    for (std::int64_t head = 0; head < task.group; ++head) {
        for (std::int64_t first = 0; first < task.query_count; first += kQueryBlock) {
            const QueryBlock block = query_block(task, first);
            const float* const queries = task.queries + first * task.query_stride + head * channels;
            multiply_transposed(block, channels, {queries, task.query_stride, 1}, s.keys_transposed, s.scores,
                                s.padded_keys);
            for (std::int64_t i = 0; i < block.rows; ++i) {
                const float log_sum = softmax_row(s.scores + i * s.padded_keys, first_key(task, first + i),
                                                  end_key(task, first + i), block, factor);
                if (task.log_sum_exp != nullptr) task.log_sum_exp[head * task.query_count + first + i] = log_sum;
            }
            product(block.rows, s.padded_channels, block.key_end - block.key_begin,
                    {s.scores + block.key_begin, s.padded_keys, 1}, s.values + block.key_begin * s.padded_channels,
                    s.padded_channels, s.block, s.padded_channels, false);
            unpack(s.block, s.padded_channels, block.rows, channels,
                   task.out + first * task.out_stride + head * channels, task.out_stride);
        }
    }
}

// Scores become probabilities = exp(factor · scores − log_sum_exp), 0 where a query may not look.
inline void probability_row(float* row, std::int64_t begin, std::int64_t end, const QueryBlock& block, float factor,
                            float log_sum) {
    std::int64_t key = begin;
    for (; key + kLanes <= end; key += kLanes) store(row + key, exp(load(row + key) * factor - log_sum));
    if (const std::int64_t n = end - key; n > 0)
        store_some(row + key, exp(load_some(row + key, n) * factor - log_sum), n);
    clear_unseen(row, begin, end, block);
}

// Out gradient · valueᵀ becomes the scores' gradient, probabilities · (it − delta) · factor.
inline void score_gradient_row(const float* probabilities, float* gradients, std::int64_t begin, std::int64_t end,
                               const QueryBlock& block, float factor, float delta) {
    std::int64_t key = begin;
    for (; key + kLanes <= end; key += kLanes)
        store(gradients + key, load(probabilities + key) * (load(gradients + key) - delta) * factor);
    if (const std::int64_t n = end - key; n > 0) {
        const Vec p = load_some(probabilities + key, n);
        store_some(gradients + key, p * (load_some(gradients + key, n) - delta) * factor, n);
    }
    clear_unseen(gradients, begin, end, block);
}

inline float dot(const float* a, const float* b, std::int64_t count) {
    return sum_over(
        count, [=](std::int64_t i) { return load(a + i) * load(b + i); },
        [=](std::int64_t i, std::int64_t n) { return load_some(a + i, n) * load_some(b + i, n); });
}

inline void backward_block(const AttentionTask& task, const AttentionScratch& s, std::int64_t head,
                           const QueryBlock& block) {
    const std::int64_t channels = task.head_channels, padded = s.padded_channels, first = block.first;
    const float factor = root_scale(task);
    const std::int64_t out_at = first * task.out_stride + head * channels;
    pack(task.queries + first * task.query_stride + head * channels, task.query_stride, block.rows, channels, padded,
         s.queries);
    pack(task.out_gradient + out_at, task.out_stride, block.rows, channels, padded, s.out_gradient);
    multiply_transposed(block, channels, {s.queries, padded, 1}, s.keys_transposed, s.scores, s.padded_keys);
    multiply_transposed(block, channels, {s.out_gradient, padded, 1}, s.values_transposed, s.score_gradients,
                        s.padded_keys);
    for (std::int64_t i = 0; i < block.rows; ++i) {
        float* const probabilities = s.scores + i * s.padded_keys;
        float* const gradients = s.score_gradients + i * s.padded_keys;
        const std::int64_t begin = first_key(task, first + i), end = end_key(task, first + i);
        probability_row(probabilities, begin, end, block, factor,
                        task.log_sum_exp[head * task.query_count + first + i]);
        // Out gradient · out, which is also the mean of out gradient · valueᵀ.
        const float delta = task.out != nullptr
                                ? dot(s.out_gradient + i * padded, task.out + out_at + i * task.out_stride, channels)
                                : dot(probabilities + begin, gradients + begin, end - begin);
        score_gradient_row(probabilities, gradients, begin, end, block, factor, delta);
    }
    const std::int64_t keys = block.key_end - block.key_begin, at = block.key_begin * padded;
    product(block.rows, padded, keys, {s.score_gradients + block.key_begin, s.padded_keys, 1}, s.keys + at, padded,
            s.block, padded, false);
    unpack(s.block, padded, block.rows, channels, task.query_gradient + first * task.query_stride + head * channels,
           task.query_stride);
    product(keys, padded, block.rows, {s.score_gradients + block.key_begin, 1, s.padded_keys}, s.queries, padded,
            s.key_gradient + at, padded, true);
    product(keys, padded, block.rows, {s.scores + block.key_begin, 1, s.padded_keys}, s.out_gradient, padded,
            s.value_gradient + at, padded, true);
}

void attention_backward(const AttentionTask& task) {
    const std::int64_t channels = task.head_channels, keys = task.key_count;
    const AttentionScratch s = allocate_scratch(keys, channels, true, task.scratch);
    pack_transposed(task.keys, task.kv_stride, keys, channels, s.keys_transposed);
    pack_transposed(task.values, task.kv_stride, keys, channels, s.values_transposed);
    pack(task.keys, task.kv_stride, keys, channels, s.padded_channels, s.keys);
    clear(s.keys + keys * s.padded_channels, (s.padded_keys - keys) * s.padded_channels);
    clear(s.key_gradient, s.padded_keys * s.padded_channels);
    clear(s.value_gradient, s.padded_keys * s.padded_channels);
    for (std::int64_t head = 0; head < task.group; ++head) {
        for (std::int64_t first = 0; first < task.query_count; first += kQueryBlock) {
            backward_block(task, s, head, query_block(task, first));
        }
    }
    unpack(s.key_gradient, s.padded_channels, keys, channels, task.key_gradient, task.kv_stride);
    unpack(s.value_gradient, s.padded_channels, keys, channels, task.value_gradient, task.kv_stride);
}
