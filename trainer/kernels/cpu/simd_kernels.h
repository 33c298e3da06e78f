#pragma once

#include <cstdint>

// The inner loops of the CPU backend, compiled once for each instruction set and reached through a table. They see
// pointers and counts only; who calls them has checked the shapes and cut the work into tiles.
namespace atl::kernels::cpu {

// So many rows of C columns, one after another.
struct NormRows {
    std::int64_t count;
    std::int64_t columns;
};

struct AdamWFactors {
    float decay;  // learning rate · weight decay; 1 − decay would lose its last digits every step
    float beta1;
    float beta2;
    float step_size;  // learning rate / (1 − beta1^step)
    float root_bias;  // 1 / sqrt(1 − beta2^step)
    float epsilon;
    float gradient_scale;
};

// How rows of a format other than fp32 are read and written.
struct RowFormat {
    std::int64_t element_bytes;
    void (*widen)(const void* from, std::int64_t count, float* to);
    void (*narrow)(const float* from, std::int64_t count, void* to);  // rounds to nearest even
};

// Some columns of a matrix: where they begin in the first row, and elements between rows.
struct AttentionRows {
    void* data;
    std::int64_t stride;
};

// What a task of attention computes.
enum class AttentionPass {
    kForward,
    kBackward,        // all gradients
    kQueryGradients,  // and deltas
    kKeyGradients,    // and those of the values, of deltas
    kStepScores,      // a step of generation: one query a head
    kStepValues,
};

// Attention of query heads that share one key/value head, in one sequence.
struct AttentionTask {
    AttentionPass pass;
    const RowFormat* format;             // of all rows; null: fp32
    AttentionRows queries;               // the first head, first query
    AttentionRows keys;                  // the first key
    AttentionRows values;                // as keys
    AttentionRows out;                   // as queries; not in backward
    const std::int32_t* segment_starts;  // [query_count]; null: 0
    std::int64_t first_query;            // query i sees keys segment_starts[i] … first_query + i of the sequence
    std::int64_t query_count;
    std::int64_t first_key;  // of the sequence; a multiple of kAttentionPanel
    std::int64_t key_count;
    std::int64_t group;          // query heads
    std::int64_t head_channels;  // D
    float* log_sum_exp;          // [group, query_count]; may be null in forward
    float* scratch;
    // Backward only.
    AttentionRows out_gradient;    // as queries
    AttentionRows query_gradient;  // as queries
    AttentionRows key_gradient;    // as keys
    AttentionRows value_gradient;  // as keys
    float* deltas;                 // [group, query_count]: out gradient · out of each query; null in kBackward
    // Steps of generation only. Floats between heads: a multiple of kAttentionPanel.
    float* scores;  // [group, keys]
    std::int64_t scores_stride;
};

// Keys that some instruction set packs together are as many, or a part of it.
constexpr std::int64_t kAttentionPanel = 32;

struct SimdKernels {
    const char* name;

    void (*add)(const float* a, const float* b, float* out, std::int64_t count);
    void (*scale)(float* x, float factor, std::int64_t count);
    double (*sum)(const float* x, std::int64_t count);
    double (*sum_of_squares)(const float* x, std::int64_t count);
    void (*int8_to_f32)(const std::int8_t* from, float factor, float* to, std::int64_t count);
    // Elements [begin, begin + count) of packed 4-bit codes, the first of a byte in its high bits; values: [16].
    void (*nf4_to_f32)(const std::uint8_t* codes, std::int64_t begin, const float* values, float* to,
                       std::int64_t count);
    // Rounds up where the bits that are lost, with `random` added, carry.
    void (*round_to_bf16)(const float* from, const std::uint16_t* random, std::uint16_t* to, std::int64_t count);
    // Two streams of 16 random bits for each of the elements [begin, begin + count).
    void (*random_halves)(std::uint64_t seed, std::int64_t step, std::int64_t begin, std::uint16_t* first,
                          std::uint16_t* second, std::int64_t count);

    void (*rmsnorm_forward)(NormRows rows, const float* x, const float* weight, float epsilon, float* out, float* rstd);
    void (*add_rmsnorm_forward)(NormRows rows, const float* x, const float* delta, const float* weight, float epsilon,
                                float* sum, float* out, float* rstd);
    void (*rmsnorm_apply)(NormRows rows, const float* x, const float* weight, const float* rstd, float* out);
    // Adds to weight_gradient [C]. residual_gradient may be null.
    void (*rmsnorm_backward)(NormRows rows, const float* x, const float* weight, const float* rstd,
                             const float* out_gradient, const float* residual_gradient, float* x_gradient,
                             float* weight_gradient);

    // moments [N, 2]: mean and 1/sqrt(variance + epsilon) of each row.
    void (*layernorm_forward)(NormRows rows, const float* x, const float* weight, const float* bias, float epsilon,
                              float* out, float* moments);
    void (*layernorm_apply)(NormRows rows, const float* x, const float* weight, const float* bias, const float* moments,
                            float* out);
    // Adds to weight_gradient and bias_gradient [C]. residual_gradient may be null.
    void (*layernorm_backward)(NormRows rows, const float* x, const float* weight, const float* moments,
                               const float* out_gradient, const float* residual_gradient, float* x_gradient,
                               float* weight_gradient, float* bias_gradient);

    // One row: out = x + bias, + residual if that is not null; x = max(x + bias, 0).
    void (*add_bias)(const float* x, const float* bias, const float* residual, float* out, std::int64_t columns);
    void (*bias_relu)(float* x, const float* bias, std::int64_t columns);
    void (*relu_backward)(const float* out, float* gradient, std::int64_t count);
    // Adds the sums of some columns over all rows, `stride` floats apart, to out.
    void (*sum_rows)(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t columns, float* out);

    // One row of `heads` heads; table: D/2 cosines then D/2 sines, direction 1 forward and −1 backward.
    void (*rope)(float* row, const float* table, std::int64_t heads, std::int64_t head_channels, float direction);

    std::int64_t (*attention_scratch_floats)(AttentionPass pass, std::int64_t keys, std::int64_t head_channels);
    void (*attention_forward)(const AttentionTask& task);
    void (*attention_backward)(const AttentionTask& task);
    void (*attention_step_scores)(const AttentionTask& task);
    void (*attention_step_values)(const AttentionTask& task);

    // One row: gate [F] then up [F].
    void (*swiglu_forward)(const float* gate_up, float* out, std::int64_t channels);
    void (*swiglu_backward)(const float* gate_up, const float* out_gradient, float* gate_up_gradient, float* out,
                            std::int64_t channels);

    // One row of V logits and a valid target: the loss.
    float (*cross_entropy_forward)(const float* logits, std::int64_t vocabulary, std::int64_t target);
    // … and the logits become the gradient of scale · loss.
    float (*cross_entropy_backward)(float* logits, std::int64_t vocabulary, std::int64_t target, float scale);

    void (*adamw)(const AdamWFactors& factors, float* weights, const float* gradients, float* first, float* second,
                  std::int64_t count);
    void (*sgd)(float decay, float rate, float momentum, float gradient_scale, float* weights, const float* gradients,
                float* momenta, std::int64_t count);  // momenta may be null
    void (*nesterov)(float momentum, float gradient_scale, float* direction, const float* gradients, float* momenta,
                     std::int64_t count);
};

namespace baseline {
const SimdKernels& simd_kernels();
}
namespace avx2 {
const SimdKernels& simd_kernels();
}
namespace avx512 {
const SimdKernels& simd_kernels();
}

}  // namespace atl::kernels::cpu
