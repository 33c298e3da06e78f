// Cross entropy, one row of logits at a time.

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
