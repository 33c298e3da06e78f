#pragma once

#include <array>
#include <deque>
#include <map>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/gpu/own_memory.h"
#include "trainer/kernels/gpu/products.h"
#include "trainer/kernels/gpu/runtime.h"
#include "trainer/kernels/gpu/sdpa.h"

// One GPU. Each operation has one kernel for all formats, which moves 16 bytes at a time where it can (packs.h,
// rows.h). Products are cuBLASLt's. Attention is cuDNN's in bf16 and fp16 (sdpa.h), and made of products otherwise. All
// results are the same in every run on one kind of GPU, as no sum is taken in an order that varies, but for that
// attention's gradients.
namespace atl::kernels::gpu {

// The GPUs that the runtime offers to this process. kInvalidArgument of "device", with the runtime's words: none.
Result<int> count_devices();
// A GPU's name, architecture and place on the bus, without starting it: "NVIDIA H200, sm_90, 0000:1B:00.0". Empty:
// there is no such GPU.
std::string describe_card(int index);

struct GpuOptions {
    bool graphs = true;          // false: what a region asks for is asked for anew each time. The bits are the same
    bool deterministic = false;  // attention's gradients too are the same in every run: all of it is by products
};

class GpuBackend final : public Backend {
  public:
    // kInvalidArgument of "device": there is no such GPU. kUnavailable, kResourceExhausted: it does not start.
    static Result<std::unique_ptr<Backend>> open(int index, const GpuOptions& options = {});
    ~GpuBackend() override;
    GpuBackend(const GpuBackend&) = delete;
    GpuBackend& operator=(const GpuBackend&) = delete;

    std::string name() const override { return name_; }
    std::string warning() const override { return warning_; }
    std::string card() const override { return card_; }
    using Backend::allocate;
    Result<tensor::Memory> allocate(Space space, std::int64_t bytes) override;
    std::int64_t own_bytes() const override;
    std::optional<DeviceMemory> device_memory() const override;
    bool host_reaches_device() const override { return false; }
    void copy(const Tensor& from, const Tensor& to) override;
    void copy_from_host(const void* from, const Tensor& to) override;
    void copy_to_host(const Tensor& from, void* to) override;
    void zero(const Tensor& x) override;
    void synchronize() override;

    void transfer(Stream stream, const Tensor& from, const Tensor& to) override;
    Event record(Stream stream) override;
    void wait(Stream stream, Event event) override;
    bool has_happened(Event event) override;
    std::shared_ptr<const TimedEvent> record_timed(Stream stream) override;
    LibraryStream open_stream() override;
    // The first time that a key is seen `body` runs as it is, and libraries load what they need; the second time what
    // it asks for is recorded as a graph, which is launched then and later.
    void region(const std::vector<std::uint64_t>& key, const std::function<void()>& body) override;

    void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                bool accumulate) override;

    void matmul_with(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& d,
                     const Epilogue& epilogue) override;

    void add(const Tensor& a, const Tensor& b, const Tensor& out) override;
    void scale(const Tensor& x, float factor) override;
    void sum(const Tensor& x, const Tensor& into, bool accumulate) override;
    void sum_of_squares(std::span<const Tensor> all, const Tensor& into, bool accumulate) override;
    void divide_by_norm(const Tensor& x, const Tensor& squares, float norm_min) override;
    void sum_pieces(const Tensor& pieces, const Tensor& sum) override;
    void convert(const Tensor& from, const Tensor& to) override;
    bool multiplies_quantized() const override { return false; }
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
    void wait_without_limit(Event event) override;

    struct Recorded {
        std::uint64_t number;
        EventHandle event;
    };

    GpuBackend(std::string name, std::string card, std::vector<StreamHandle> streams, const GpuOptions& options);
    // The rest of open(), which needs memory.
    Status prepare();
    // A library for attention is no must: what is missing is a warning.
    void open_sdpa();
    SdpaLibrary sdpa_library() const;  // empty: there is none
    // What a pass needs of a workspace; absent: there is no kernel for it.
    std::optional<std::int64_t> sdpa_bytes(const Sdpa::Kind& kind) const;
    bool has_sdpa(const Sdpa::Kind& kind, const Documents& documents, std::int64_t free_bytes) const;
    // False: nothing was asked for, and the pass is by products. `tensors`: without what is of documents or gradients.
    bool attends_by_sdpa(const AttentionShape& shape, Sdpa::Pass pass, const Documents& documents,
                         Sdpa::Tensors tensors, const Tensor& qkv_gradient, tensor::Arena& workspace);
    cudaStream_t on(Stream stream) const { return streams_[static_cast<std::size_t>(stream)].get(); }
    cudaStream_t compute() const { return on(Stream::kCompute); }
    const EventHandle* find(Event event) const;
    GraphHandle record_graph(const std::function<void()>& body);
    // What a graph cannot hold.
    void check_outside_region(const char* what) const;
    // A product whose operands the library does not take together: converted in scratch_, as many columns of c at a
    // time as fit there.
    void multiply_converted(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                            bool accumulate);
    template <class Term>
    void add_up(std::int64_t count, const Term& term, const Tensor& into, bool accumulate);

    std::string name_, card_, warning_;
    std::vector<StreamHandle> streams_;  // by Stream
    std::deque<Recorded> recorded_;      // that may not have happened yet, in the order of their numbers
    std::deque<EventHandle> idle_;       // to be recorded again
    std::uint64_t last_event_ = 0;
    GpuOptions options_;
    std::map<std::vector<std::uint64_t>, std::size_t> regions_;  // the number of its graph; 0: seen once, has none
    std::vector<GraphHandle> graphs_;                            // from number 1; clang 15 crashes on a map of these
    bool is_in_region_ = false;
    std::unique_ptr<Products> products_;
    std::unique_ptr<Sdpa> sdpa_;  // null: attention is by products alone
    tensor::Memory scratch_;      // of multiply_converted()
    tensor::Memory sums_;         // of add_up()
    tensor::Memory corrections_;  // of adamw()
    tensor::Memory books_;        // of dequantize(): the values of NF4, then those that its factors are codes of
};

inline void check_matrix(const Tensor& x, std::int64_t rows, std::int64_t columns) {
    check(x.contiguous() && x.rows() == rows && x.columns() == columns, "a matrix has another shape");
}

inline void check_count(const Tensor& x, std::int64_t count) {
    check(x.contiguous() && x.element_count() == count, "a tensor has another size");
}

}  // namespace atl::kernels::gpu
