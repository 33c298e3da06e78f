// Causal attention of one key/value head, in blocks of query rows. The five products run on one small register-blocked
// kernel over packed operands that fit the caches; only the block's rows of probabilities exist at a time.

constexpr int kTileRows = kLanes >= 16 ? 8 : 4;
constexpr std::int64_t kPanel = 2 * kLanes;  // columns of a tile, keys of a packed panel
constexpr std::int64_t kQueryBlock = 32;
static_assert(kAttentionPanel % kPanel == 0 && kPanel <= kQueryBlock);

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
    const std::int64_t in_tiles = rows - rows % kTileRows;
    for (std::int64_t i = 0; i < in_tiles; i += kTileRows) {
        tile<kTileRows, kVectors>(inner, a.data + i * a.row, a.row, a.column, b, b_row, c + i * c_row, c_row,
                                  accumulate);
    }
    for (std::int64_t i = in_tiles; i < rows; ++i) {
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

// Rows [first, first + count) of one head's D channels -> [count, padded], filled with zeros. (Where they lie, rows are
// often a multiple of 4 KiB apart, so that few of them stay in the first cache.)
inline void pack(const AttentionTask& task, const AttentionRows& matrix, std::int64_t head, std::int64_t first,
                 std::int64_t count, std::int64_t padded, float* to) {
    const std::int64_t channels = task.head_channels;
    for (std::int64_t row = 0; row < count; ++row, to += padded) {
        const std::int64_t at = (first + row) * matrix.stride + head * channels;
        if (task.format != nullptr) {
            task.format->widen(static_cast<const char*>(matrix.data) + at * task.format->element_bytes, channels, to);
        } else {
            const float* const from = static_cast<const float*>(matrix.data) + at;
            for (std::int64_t c = 0; c < channels; ++c) to[c] = from[c];
        }
        for (std::int64_t c = channels; c < padded; ++c) to[c] = 0.0F;
    }
}

// from [count, padded] into rows [first, first + count) of one head's D channels.
inline void write_rows(const AttentionTask& task, const float* from, std::int64_t padded, const AttentionRows& matrix,
                       std::int64_t head, std::int64_t first, std::int64_t count) {
    const std::int64_t channels = task.head_channels;
    for (std::int64_t row = 0; row < count; ++row, from += padded) {
        const std::int64_t at = (first + row) * matrix.stride + head * channels;
        if (task.format != nullptr) {
            task.format->narrow(from, channels, static_cast<char*>(matrix.data) + at * task.format->element_bytes);
        } else {
            float* const to = static_cast<float*>(matrix.data) + at;
            for (std::int64_t c = 0; c < channels; ++c) to[c] = from[c];
        }
    }
}

// Keys or values [key, key + kPanel) -> [D][kPanel], filled with zeros: a panel of their transpose; rows: [kPanel, D].
inline void pack_panel(const AttentionTask& task, const AttentionRows& matrix, std::int64_t key, float* rows,
                       float* to) {
    const std::int64_t channels = task.head_channels;
    const std::int64_t count = task.key_count - key < kPanel ? task.key_count - key : kPanel;
    pack(task, matrix, 0, key, count, channels, rows);
    for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t j = 0; j < kPanel; ++j) to[c * kPanel + j] = j < count ? rows[j * channels + c] : 0.0F;
    }
}

// All keys or values of the task -> [panel][D][kPanel].
inline void pack_transposed(const AttentionTask& task, const AttentionRows& matrix, float* rows, float* to) {
    for (std::int64_t key = 0; key < task.key_count; key += kPanel, to += task.head_channels * kPanel)
        pack_panel(task, matrix, key, rows, to);
}

inline void clear(float* x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) x[i] = 0.0F;
}

// The scratch of a task, cut into its arrays. Kp: keys rounded up to panels; Dp: channels rounded up to lanes.
struct AttentionScratch {
    std::int64_t padded_keys, padded_channels;
    float* rows;                                 // [kPanel, D]
    float *keys_transposed, *values_transposed;  // [Kp / kPanel][D][kPanel]
    float *keys, *values;                        // [Kp, Dp]
    float *scores, *score_gradients;             // [kQueryBlock, Kp]
    float *block, *queries, *out_gradient;       // [kQueryBlock, Dp]
    float *key_gradient, *value_gradient;        // [Kp, Dp]
    std::int64_t floats;                         // of all
};

inline AttentionScratch allocate_scratch(AttentionPass pass, std::int64_t keys, std::int64_t channels, float* from) {
    AttentionScratch s{};
    s.padded_keys = round_up(keys, kPanel);
    s.padded_channels = round_up(channels, kLanes);
    const std::int64_t per_key = s.padded_keys * s.padded_channels, per_query = kQueryBlock * s.padded_channels;
    const auto take = [&](float*& array, std::int64_t count) {
        array = from == nullptr ? nullptr : from + s.floats;
        s.floats += round_up(count, 16);
    };
    take(s.rows, kPanel * channels);
    if (pass == AttentionPass::kStepScores) {
        take(s.keys_transposed, kPanel * channels);
        take(s.queries, kQueryBlock * channels);
        return s;
    }
    take(s.block, per_query);
    if (pass == AttentionPass::kStepValues) {
        take(s.values, per_query);
        return s;
    }
    take(s.keys_transposed, per_key);
    take(s.scores, kQueryBlock * s.padded_keys);
    take(s.queries, per_query);
    if (pass == AttentionPass::kForward) {
        take(s.values, per_key);
        return s;
    }
    take(s.values_transposed, per_key);
    take(s.score_gradients, kQueryBlock * s.padded_keys);
    take(s.out_gradient, per_query);
    if (pass != AttentionPass::kKeyGradients) take(s.keys, per_key);
    if (pass == AttentionPass::kQueryGradients) return s;
    take(s.key_gradient, per_key);
    take(s.value_gradient, per_key);
    return s;
}

inline AttentionScratch allocate_scratch(const AttentionTask& task) {
    return allocate_scratch(task.pass, task.key_count, task.head_channels, task.scratch);
}

std::int64_t attention_scratch_floats(AttentionPass pass, std::int64_t keys, std::int64_t head_channels) {
    return allocate_scratch(pass, keys, head_channels, nullptr).floats;
}

// Rows [first, first + rows) of one head and the task's keys that any of them sees, rounded out to panels.
struct QueryBlock {
    std::int64_t first, rows, key_begin, key_end;
};

// Of the task's keys those that a query sees: [first_seen, end_seen).
inline std::int64_t end_seen(const AttentionTask& task, std::int64_t query) {
    const std::int64_t end = task.first_query + query + 1 - task.first_key;
    if (end < 0) return 0;
    return end < task.key_count ? end : task.key_count;
}

inline std::int64_t first_seen(const AttentionTask& task, std::int64_t query) {
    const std::int64_t first = (task.segment_starts == nullptr ? 0 : task.segment_starts[query]) - task.first_key;
    const std::int64_t end = end_seen(task, query);
    if (first < 0) return 0;
    return first < end ? first : end;
}

inline QueryBlock query_block(const AttentionTask& task, std::int64_t first) {
    const std::int64_t left = task.query_count - first;
    const std::int64_t rows = left < kQueryBlock ? left : kQueryBlock;
    return {first, rows, first_seen(task, first) / kPanel * kPanel, round_up(end_seen(task, first + rows - 1), kPanel)};
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
    const AttentionScratch s = allocate_scratch(task);
    pack_transposed(task, task.keys, s.rows, s.keys_transposed);
    pack(task, task.values, 0, 0, task.key_count, s.padded_channels, s.values);
    clear(s.values + task.key_count * s.padded_channels, (s.padded_keys - task.key_count) * s.padded_channels);
    const float factor = root_scale(task);
    for (std::int64_t head = 0; head < task.group; ++head) {
        for (std::int64_t first = 0; first < task.query_count; first += kQueryBlock) {
            const QueryBlock block = query_block(task, first);
            pack(task, task.queries, head, first, block.rows, s.padded_channels, s.queries);
            multiply_transposed(block, channels, {s.queries, s.padded_channels, 1}, s.keys_transposed, s.scores,
                                s.padded_keys);
            for (std::int64_t i = 0; i < block.rows; ++i) {
                const float log_sum = softmax_row(s.scores + i * s.padded_keys, first_seen(task, first + i),
                                                  end_seen(task, first + i), block, factor);
                if (task.log_sum_exp != nullptr) task.log_sum_exp[head * task.query_count + first + i] = log_sum;
            }
            product(block.rows, s.padded_channels, block.key_end - block.key_begin,
                    {s.scores + block.key_begin, s.padded_keys, 1}, s.values + block.key_begin * s.padded_channels,
                    s.padded_channels, s.block, s.padded_channels, false);
            write_rows(task, s.block, s.padded_channels, task.out, head, first, block.rows);
        }
    }
}
