#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/cpu/gemm.h"
#include "trainer/kernels/cpu/simd_kernels.h"
#include "trainer/kernels/cpu/thread_pool.h"

namespace atl::kernels::cpu {

class AttentionTiles;

// Backend over a library's GEMM and the kernels of one instruction set. Work is cut into tiles by shape alone and
// sums over tiles are added in tile order, so results are bitwise the same for every number of threads.
class CpuBackend final : public Backend {
  public:
    CpuBackend(const SimdKernels& simd, const Sgemm& sgemm, int threads, tensor::DType products);

    std::string name() const override;

    Result<tensor::Memory> allocate(Space space, std::int64_t bytes) override;
    bool host_reaches_device() const override { return true; }
    void copy(const Tensor& from, const Tensor& to) override;
    void copy_from_host(const void* from, const Tensor& to) override;
    void copy_to_host(const Tensor& from, void* to) override;
    void zero(const Tensor& x) override;
    void synchronize() override {}
    void transfer(Stream, const Tensor& from, const Tensor& to) override { copy(from, to); }
    Event record(Stream) override { return {}; }
    void wait(Stream, Event) override {}
    bool has_happened(Event) override { return true; }
    std::shared_ptr<const TimedEvent> record_timed(Stream) override;

    void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                bool accumulate) override;

    void add(const Tensor& a, const Tensor& b, const Tensor& out) override;
    void scale(const Tensor& x, float factor) override;
    void sum(const Tensor& x, const Tensor& into, bool accumulate) override;
    void sum_of_squares(std::span<const Tensor> all, const Tensor& into, bool accumulate) override;
    void divide_by_norm(const Tensor& x, const Tensor& squares, float norm_min) override;
    void sum_pieces(const Tensor& pieces, const Tensor& sum) override;
    void convert(const Tensor& from, const Tensor& to) override;
    void dequantize(const Tensor& from, const Tensor& to) override;

    void embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) override;
    void embedding_backward(const Tensor& ids, const Tensor& by_id, const Tensor& out_gradient,
                            const Tensor& table_gradient, bool accumulate) override;

    void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                         const Tensor& rstd) override;
    void add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                             const Tensor& sum, const Tensor& out, const Tensor& rstd) override;
    void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) override;
    void rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                          const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                          bool accumulate) override;

    void norm_heads(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                    const Tensor& key_weight, float epsilon, const Tensor& out, const Tensor& rstd) override;
    void norm_heads_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                             const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                             const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                             bool accumulate) override;

    void layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon, const Tensor& out,
                           const Tensor& moments) override;
    void layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                         const Tensor& out) override;
    void layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments, const Tensor& out_gradient,
                            const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                            const Tensor& bias_gradient, bool accumulate) override;

    void add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) override;
    void bias_relu(const Tensor& x, const Tensor& bias) override;
    void relu_backward(const Tensor& out, const Tensor& gradient) override;
    void sum_rows(const Tensor& x, const Tensor& out, bool accumulate) override;

    void rope(const AttentionShape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
              bool backward) override;

    std::int64_t attention_kept_bytes(const AttentionShape& shape) const override;
    std::int64_t attention_workspace_bytes(const AttentionShape& shape) const override;
    void attention_forward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                           const Tensor& out, const Tensor& kept, tensor::Arena& workspace) override;
    void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                            const Tensor& out, const Tensor& kept, const Tensor& out_gradient, const Rotation& rotation,
                            const Tensor& qkv_gradient, tensor::Arena& workspace) override;
    void attention_cached(const AttentionShape& shape, const Tensor& qkv, std::int64_t past, const Tensor& key_cache,
                          const Tensor& value_cache, const Tensor& out, tensor::Arena& workspace) override;
    std::int64_t attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) const override;

    void swiglu_forward(const Tensor& gate_up, const Tensor& out) override;
    void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                         const Tensor& out) override;

    void dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) override;

    std::int64_t loss_rows(std::int64_t vocabulary) const override;
    void cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) override;
    void cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                const Tensor& loss_scale, const Tensor& losses) override;

    void finish_step(const StepRules& rules, const Tensor& scalars) override;
    void adamw(const AdamWStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) override;
    void sgd(const SgdStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) override;
    void nesterov(float momentum, const Tensor& scalars, std::span<const OptimizerRange> ranges) override;

  private:
    void wait_without_limit(Event) override {}
    // body(begin, end) over tiles of [0, count); the tiles depend on count and tile alone.
    template <class Body>
    void for_ranges(std::int64_t count, std::int64_t tile, Body&& body);
    // body(row) over the rows of a matrix, tile by tile.
    template <class Body>
    void for_rows(std::int64_t rows, std::int64_t columns, Body&& body);
    template <class Part>
    void reduce(const Tensor& x, Part part, const Tensor& into, bool accumulate);
    template <class Body>
    void norm_rows(const Tensor& x, const Tensor& weight, std::initializer_list<Tensor> like_x,
                   const Tensor& statistics, std::int64_t statistics_per_row, Body&& body);
    // Adds up what the tiles left in partial_gradients_ for weights of so many columns each, in the order of the tiles,
    // which are as many whatever the number of threads. Empty gradients are not written.
    static constexpr std::int64_t kGradientTiles = 16;
    void add_up_tiles(std::initializer_list<Tensor> gradients, std::int64_t columns, bool accumulate);
    template <class Body>
    void norm_rows_backward(const Tensor& x, const Tensor& weight, std::initializer_list<Tensor> like_x,
                            std::initializer_list<Tensor> gradients, bool accumulate, Body&& body);
    void compute_attention_gradients(const AttentionShape& shape, const Tensor& qkv, const Tensor& segment_starts,
                                     const Tensor& log_sum_exp, const Tensor& out_gradient, const Tensor& qkv_gradient,
                                     tensor::Arena& workspace);
    template <class Fill>
    void run_attention(AttentionPass pass, const AttentionShape& shape, const AttentionTiles& tiles, std::int64_t past,
                       tensor::Arena& workspace, Fill&& fill);
    // Of a thread.
    std::int64_t attention_scratch_bytes(AttentionPass pass, std::int64_t keys, std::int64_t channels) const;

    // update(weights, gradients, first, second, count) on run after run of the range, with moments in fp32 (null where
    // there are none); then rounds what is kept in another format.
    template <class Update>
    void update_runs(const OptimizerRange& range, std::int64_t step, Update update);
    // A norm's weight or a bias in fp32: itself, or widened into `widened` until the next call.
    const float* widen_vector(const Tensor& vector, std::int64_t channels, std::vector<float>& widened);

    const SimdKernels& simd_;
    const Sgemm& sgemm_;
    tensor::DType products_;
    ThreadPool pool_;
    Gemm gemm_;
    std::vector<double> partial_sums_;       // of reduce(): one a tile
    std::vector<float> partial_gradients_;   // of the backward passes of norms: [tiles, C]
    std::vector<float> widened_weight_;      // of a norm: [C]
    std::vector<float> widened_bias_;        // [C]
    std::vector<float> widened_key_weight_;  // of norm_heads(): [D]
};

// CpuBackend::name() of one with these.
std::string kernels_name(const SimdKernels& simd, const Sgemm& sgemm, tensor::DType products);

// Rows that make a tile of about 16k elements: small enough to spread, large enough to pay for handing out.
constexpr std::int64_t kTileElements = 16384;
constexpr std::int64_t rows_per_tile(std::int64_t columns) {
    return columns >= kTileElements ? 1 : kTileElements / columns;
}

inline void check_matrix(const Tensor& x, std::int64_t rows, std::int64_t columns) {
    check(x.contiguous() && x.rows() == rows && x.columns() == columns, "a matrix has another shape");
}

inline void check_count(const Tensor& x, std::int64_t count) {
    check(x.contiguous() && x.element_count() == count, "a tensor has another size");
}

template <class Body>
void CpuBackend::for_ranges(std::int64_t count, std::int64_t tile, Body&& body) {
    pool_.parallel_for((count + tile - 1) / tile, [&](std::int64_t index, int) {
        const std::int64_t begin = index * tile;
        body(begin, begin + tile < count ? begin + tile : count);
    });
}

template <class Body>
void CpuBackend::for_rows(std::int64_t rows, std::int64_t columns, Body&& body) {
    for_ranges(rows, rows_per_tile(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) body(row);
    });
}

}  // namespace atl::kernels::cpu
