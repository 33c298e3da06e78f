// A step of generation: one query a head. Scores by blocks of keys, for all heads that share them; then softmax and sum
// of values by heads. So keys and values are packed where they are used, and the bits are attention_forward's.

void attention_step_scores(const AttentionTask& task) {
    const std::int64_t channels = task.head_channels;
    const AttentionScratch s = allocate_scratch(task);
    for (std::int64_t first = 0; first < task.group; first += kQueryBlock) {
        const std::int64_t heads = task.group - first < kQueryBlock ? task.group - first : kQueryBlock;
        for (std::int64_t i = 0; i < heads; ++i)
            pack(task, task.queries, first + i, 0, 1, channels, s.queries + i * channels);
        for (std::int64_t key = 0; key < task.key_count; key += kPanel) {
            pack_panel(task, task.keys, key, s.rows, s.keys_transposed);
            product(heads, kPanel, channels, {s.queries, channels, 1}, s.keys_transposed, kPanel,
                    task.scores + first * task.scores_stride + key, task.scores_stride, false);
        }
    }
}

void attention_step_values(const AttentionTask& task) {
    const AttentionScratch s = allocate_scratch(task);
    const std::int64_t padded = s.padded_channels;
    for (std::int64_t first = 0; first < task.group; first += kQueryBlock) {
        const std::int64_t heads = task.group - first < kQueryBlock ? task.group - first : kQueryBlock;
        float* const scores = task.scores + first * task.scores_stride;
        for (std::int64_t i = 0; i < heads; ++i) {
            softmax_row(scores + i * task.scores_stride, 0, task.key_count, {0, 1, 0, task.key_count},
                        root_scale(task));
        }
        for (std::int64_t key = 0; key < task.key_count; key += kQueryBlock) {
            const std::int64_t count = task.key_count - key < kQueryBlock ? task.key_count - key : kQueryBlock;
            pack(task, task.values, 0, key, count, padded, s.values);
            product(heads, padded, count, {scores + key, task.scores_stride, 1}, s.values, padded, s.block, padded,
                    key > 0);
        }
        for (std::int64_t i = 0; i < heads; ++i)
            write_rows(task, s.block + i * padded, padded, task.out, first + i, 0, 1);
    }
}
