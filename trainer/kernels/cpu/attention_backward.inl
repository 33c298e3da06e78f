// The backward pass of attention.inl: all gradients at once, or those of the queries and those of keys and values by
// themselves, whose tasks may be smaller. Scores are computed again in each. A gradient's terms are added in the same
// order either way: a query's by its keys, a key's by head and query.

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

// The mean of out gradient · valueᵀ over a query's probabilities, which is out gradient · out. From the probabilities,
// over their own sum: so the scores' gradients of a query add up to zero as nearly as they can, and what its keys have
// in common adds no error to its gradient. The sum of probabilities is 1 but for the rounding of log_sum_exp.
inline float delta_of(const AttentionTask& task, const AttentionScratch& s, std::int64_t query, std::int64_t row) {
    const std::int64_t begin = first_seen(task, query), at = row * s.padded_keys + begin;
    const std::int64_t keys = end_seen(task, query) - begin;
    const float* const p = s.scores + at;
    const float total = sum_over(
        keys, [=](std::int64_t i) { return load(p + i); },
        [=](std::int64_t i, std::int64_t n) { return load_some(p + i, n); });
    return dot(p, s.score_gradients + at, keys) / total;
}

// The block's probabilities and the gradients of its scores.
inline void backward_scores(const AttentionTask& task, const AttentionScratch& s, std::int64_t head,
                            const QueryBlock& block) {
    const std::int64_t channels = task.head_channels, padded = s.padded_channels;
    const float factor = root_scale(task);
    pack(task, task.queries, head, block.first, block.rows, padded, s.queries);
    pack(task, task.out_gradient, head, block.first, block.rows, padded, s.out_gradient);
    multiply_transposed(block, channels, {s.queries, padded, 1}, s.keys_transposed, s.scores, s.padded_keys);
    multiply_transposed(block, channels, {s.out_gradient, padded, 1}, s.values_transposed, s.score_gradients,
                        s.padded_keys);
    for (std::int64_t i = 0; i < block.rows; ++i) {
        const std::int64_t query = block.first + i, at = head * task.query_count + query;
        const std::int64_t begin = first_seen(task, query), end = end_seen(task, query);
        probability_row(s.scores + i * s.padded_keys, begin, end, block, factor, task.log_sum_exp[at]);
        const bool is_known = task.pass == AttentionPass::kKeyGradients;
        const float delta = is_known ? task.deltas[at] : delta_of(task, s, query, i);
        if (task.pass == AttentionPass::kQueryGradients) task.deltas[at] = delta;
        score_gradient_row(s.scores + i * s.padded_keys, s.score_gradients + i * s.padded_keys, begin, end, block,
                           factor, delta);
    }
}

inline void backward_block(const AttentionTask& task, const AttentionScratch& s, std::int64_t head,
                           const QueryBlock& block) {
    const std::int64_t padded = s.padded_channels;
    const std::int64_t keys = block.key_end - block.key_begin, at = block.key_begin * padded;
    if (keys <= 0) return;
    backward_scores(task, s, head, block);
    if (task.pass != AttentionPass::kKeyGradients) {
        product(block.rows, padded, keys, {s.score_gradients + block.key_begin, s.padded_keys, 1}, s.keys + at, padded,
                s.block, padded, false);
        write_rows(task, s.block, padded, task.query_gradient, head, block.first, block.rows);
    }
    if (task.pass == AttentionPass::kQueryGradients) return;
    product(keys, padded, block.rows, {s.score_gradients + block.key_begin, 1, s.padded_keys}, s.queries, padded,
            s.key_gradient + at, padded, true);
    product(keys, padded, block.rows, {s.scores + block.key_begin, 1, s.padded_keys}, s.out_gradient, padded,
            s.value_gradient + at, padded, true);
}

void attention_backward(const AttentionTask& task) {
    const std::int64_t keys = task.key_count;
    const AttentionScratch s = allocate_scratch(task);
    const std::int64_t padded = s.padded_channels;
    pack_transposed(task, task.keys, s.rows, s.keys_transposed);
    pack_transposed(task, task.values, s.rows, s.values_transposed);
    if (task.pass != AttentionPass::kKeyGradients) {
        pack(task, task.keys, 0, 0, keys, padded, s.keys);
        clear(s.keys + keys * padded, (s.padded_keys - keys) * padded);
    }
    if (task.pass != AttentionPass::kQueryGradients) {
        clear(s.key_gradient, s.padded_keys * padded);
        clear(s.value_gradient, s.padded_keys * padded);
    }
    for (std::int64_t head = 0; head < task.group; ++head) {
        for (std::int64_t first = 0; first < task.query_count; first += kQueryBlock)
            backward_block(task, s, head, query_block(task, first));
    }
    if (task.pass == AttentionPass::kQueryGradients) return;
    write_rows(task, s.key_gradient, padded, task.key_gradient, 0, 0, keys);
    write_rows(task, s.value_gradient, padded, task.value_gradient, 0, 0, keys);
}
