#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/kernels/step_scalars.h"
#include "trainer/tensor/arena.h"
#include "trainer/tensor/targets.h"
#include "trainer/tensor/tensor.h"

// The one contract between the model and a device. Legend: B sequences, T tokens a sequence, N = B·T rows, C channels,
// H query heads, K key/value heads, D channels a head, F feed-forward channels, V vocabulary.
namespace atl::kernels {

using tensor::kIgnoredLabel;
using tensor::Tensor;

// Attention over tokens that hold query, key and value side by side: qkv [B, T, (H + 2K)·D].
struct AttentionShape {
    std::int64_t batch;                          // B
    std::int64_t length;                         // T
    std::int64_t heads;                          // H
    std::int64_t kv_heads;                       // K, divides H
    std::int64_t head_channels;                  // D
    tensor::DType format = tensor::DType::kF32;  // of qkv and all that is like it
    std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_channels; }
};

// One AdamW step (Loshchilov & Hutter, arXiv:1711.05101), as torch.optim.AdamW computes it.
struct AdamWStep {
    float learning_rate;
    float beta1;
    float beta2;
    float epsilon;
    float weight_decay;
};

// SGD with momentum, as torch.optim.SGD (dampening 0, no Nesterov) but with decoupled weight decay.
struct SgdStep {
    float learning_rate;
    float momentum;
    float weight_decay;
    bool uses_factor = true;  // false: gradients are taken as they are, not multiplied by StepScalars::factor
};

// What is added to a product d [M, N]; empty tensors count as zero.
struct Epilogue {
    Tensor bias;    // [N], to each row
    Tensor addend;  // [M, N], dense; not d
};

// What turns query and key by their positions, see Backend::rope. An empty table: nothing.
struct Rotation {
    Tensor table, positions;
};

// The documents of a batch of which some sequence holds several; of another it is empty.
struct Documents {
    Tensor segment_starts = {};  // int32 [B, T]: where in its sequence this token's document begins
    // The same as a list with a power of two of places, in the order of rows: the first row of each document, and B·T
    // in places that are left and after the last (int32 [places + 1]); its length, 0 in places that are left (int32
    // [places]). Empty: there are more documents than kDocumentsMax, or the device has no use for a list.
    Tensor first_rows = {}, lengths = {};
    bool empty() const { return segment_starts.empty(); }
    std::int64_t places() const { return lengths.element_count(); }
};
inline constexpr std::int64_t kDocumentsMax = 1024;

// What an optimizer step works on: flat ranges of equal length.
struct OptimizerRange {
    Tensor weights;         // fp32 or bf16
    Tensor gradients;       // fp32, fp16 or bf16
    Tensor first_moments;   // fp32 or bf16; empty where the optimizer keeps none
    Tensor second_moments;  // likewise
    Tensor stored;          // gets the new weights in its storage format, rounded to nearest even; empty: nothing does
    // What is bf16 is rounded stochastically: up with the probability that makes the mean exact. The random numbers
    // depend on seed, step and the element's index alone (Philox 4x32-10, Salmon et al., SC11), so that no way of
    // cutting the weights into ranges changes a bit.
    std::uint64_t seed = 0;
    std::int64_t first_element = 0;  // the index of the first element among all weights
    bool decays = true;              // false: without the step's weight decay
};

// Where memory is. kDevice: what operations work on. kPinned: memory of the host that the device copies from and to
// while the host goes on, and that its operations reach too, at the rate of the bus.
enum class Space : std::uint8_t { kDevice, kPinned };

// What a device runs in order; two of them wait for each other by events alone. Every operation is on kCompute,
// transfers are on the others. Numbers after these are streams of libraries (Backend::open_stream).
enum class Stream : std::uint8_t { kCompute, kIn, kOut };
struct Event {
    std::uint64_t number = 0;  // 0: has happened; else counted from 1 in the order of their recording
};

// A stream for a library that works on a GPU's memory itself (NCCL).
struct LibraryStream {
    Stream stream = Stream::kCompute;  // for record() and wait() alone
    void* handle = nullptr;            // for the library: a cudaStream_t. Null: there is none
};

// When a stream came to a point, for measurements. Of one device; may outlive it.
class TimedEvent {
  public:
    virtual ~TimedEvent() = default;
    virtual bool has_happened() const = 0;
    // From another event of the same device to this one, below 0 where this was earlier. Both have happened.
    virtual double seconds_since(const TimedEvent& other) const = 0;
};

// A device: its memory and every operation that a model, an optimizer or a driver needs. All calls come from one
// thread; a device may run them asynchronously, in order. Tensors are contiguous and fp32, fp16 or bf16, each in the
// format of its own (kernels/formats.h), unless said otherwise; wrong shapes are programmer's errors. Whatever the
// formats, an operation computes in fp32 and rounds once, to nearest even, where it writes: two devices differ by the
// order of their sums alone, and in half formats by what attention says below. fp32 always: statistics of norms,
// losses, the rope table. Results do not depend on the number of threads. "accumulate" adds to what the output holds
// instead of overwriting it. Outputs do not alias inputs unless said so.
//
// Host code (MPI, files, memcpy) touches pinned memory alone, once the events of what the device does there have
// happened; device memory it touches through copies, or where host_reaches_device() says so, after synchronize().
class Backend {
  public:
    virtual ~Backend() = default;

    virtual std::string name() const = 0;  // its kernels, which decide the bits: "cpu (avx512, oneDNN 2.6.3)"
    // What makes it slower than it could be, and what to do; "": nothing.
    virtual std::string warning() const { return {}; }

    // --- memory ---
    // Aligned to tensor::kAlignmentBytes at least, uninitialised. kResourceExhausted when there is none. The backend
    // must outlive the memory; freeing it waits for the calls that use it.
    virtual Result<tensor::Memory> allocate(Space space, std::int64_t bytes) = 0;
    Result<tensor::Memory> allocate(std::int64_t bytes) { return allocate(Space::kDevice, bytes); }
    // Device memory that it keeps for itself from its beginning to its end, beside what is allocated: it takes no more
    // later, so a plan of memory is whole with it. 0 where device memory is the host's own, which is counted otherwise.
    virtual std::int64_t own_bytes() const { return 0; }
    // Device memory in bytes: all, and what nobody has now, other processes included. Absent: it is the host's own.
    struct DeviceMemory {
        std::int64_t free = 0, total = 0;
    };
    virtual std::optional<DeviceMemory> device_memory() const { return {}; }
    // Whether device memory is the host's own.
    virtual bool host_reaches_device() const = 0;
    virtual void copy(const Tensor& from, const Tensor& to) = 0;          // same dtype and element count, any shape
    virtual void copy_from_host(const void* from, const Tensor& to) = 0;  // `from` may be reused when it returns
    virtual void copy_to_host(const Tensor& from, void* to) = 0;          // waits for the result
    virtual void zero(const Tensor& x) = 0;
    virtual void synchronize() = 0;  // returns when everything asked for is done

    // --- streams ---
    // Bytes of a contiguous tensor from pinned to device memory or back, on a stream of its own. What else touches
    // either meanwhile waits for an event.
    virtual void transfer(Stream stream, const Tensor& from, const Tensor& to) = 0;
    virtual Event record(Stream stream) = 0;            // happens when what the stream was asked for is done
    virtual void wait(Stream stream, Event event) = 0;  // what the stream is asked for next; the host goes on
    virtual bool has_happened(Event event) = 0;         // asked again and again, it will
    // One more stream, until the backend's end. Only GPUs have one.
    virtual LibraryStream open_stream() { return {}; }
    // Where this GPU is in its machine, the same text in every process that uses it: "0000:3b:00.0". "": it is none.
    virtual std::string card() const { return {}; }
    // Until an event has happened. `of` says what work it ends ("step 12"), for a message.
    void wait_on_host(Event event, std::string_view of = {});
    // From now on the host waits by this, here and for outcomes: until is_done(), asked again and again, says so. A
    // device may get nowhere, so a wait may have a limit; it is for one event, `event`, and all before have happened or
    // are waited for first, one after another. Otherwise the host waits without limit.
    using Wait = std::function<void(const std::function<bool()>& is_done, Event event, std::string_view of)>;
    void wait_by(Wait wait) { wait_ = std::move(wait); }
    // As record(), with the time by the device's clock (the CPU's is the host's), which costs it a little.
    virtual std::shared_ptr<const TimedEvent> record_timed(Stream stream) = 0;
    // Runs `body`, which asks for operations alone. Calls with equal keys ask for the same ones, with equal arguments:
    // so a device may keep those of the first (a CUDA graph) and ask for them again without running `body`.
    virtual void region(const std::vector<std::uint64_t>& key, const std::function<void()>& body) {
        static_cast<void>(key);
        body();
    }

    // --- linear algebra ---
    // c [M, N] = op(a) [M, K] · op(b) [K, N]; matrices may be strided (column_range), and b quantised. Multiplied is
    // in the format of a, to which b is rounded where it has more digits; sums are fp32. So where a is fp32 the product
    // is that of b's fp32 copy: on a CPU bit for bit, though that copy is never made; on a GPU the library may add up
    // in another order. Whoever multiplies quantised matrices dequantises them where multiplies_quantized() is false.
    virtual void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                        bool accumulate) = 0;
    // d = op(a) · op(b) + bias + addend, with d dense. A device rounds once, when all is added up; or it rounds the
    // product as d is kept and then the sum, as matmul() and add_bias() do, which is what happens by default.
    virtual void matmul_with(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& d,
                             const Epilogue& epilogue);

    // --- element by element ---
    virtual void add(const Tensor& a, const Tensor& b, const Tensor& out) = 0;  // out may be a or b
    virtual void scale(const Tensor& x, float factor) = 0;                      // in place
    // Into fp64 [1], added up in fp64.
    virtual void sum(const Tensor& x, const Tensor& into, bool accumulate) = 0;
    // Over all elements of all these tensors.
    virtual void sum_of_squares(std::span<const Tensor> all, const Tensor& into, bool accumulate) = 0;
    // In place: x / max(sqrt(squares), norm_min), with squares fp64 [1], the sum of x's squares.
    virtual void divide_by_norm(const Tensor& x, const Tensor& squares, float norm_min) = 0;
    void sum_of_squares(const Tensor& x, const Tensor& into, bool accumulate) {
        sum_of_squares(std::span(&x, 1), into, accumulate);
    }
    // sum [n] of pieces [P, n], added in fp32 by one fixed tree, ((0+1)+(2+3))+…, so that ranks which hold neighbouring
    // halves of a longer list extend the same tree. Destroys the pieces, which may be bf16.
    virtual void sum_pieces(const Tensor& pieces, const Tensor& sum) = 0;
    virtual void convert(const Tensor& from, const Tensor& to) = 0;  // fp32 <-> fp16/bf16, round to nearest even
    virtual bool multiplies_quantized() const { return true; }
    // to = a quantised matrix of the same shape; each value is its code times its factor in fp32.
    virtual void dequantize(const Tensor& from, const Tensor& to) = 0;

    // --- embedding ---
    // out [N, C] = table [V, C] at ids int32 [N]; every id must be in [0, V).
    virtual void embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) = 0;
    // table_gradient [V, C]: the sum of a token's rows of out_gradient [N, C], added in their order. by_id int32 [N]
    // holds the rows 0 … N − 1 sorted by their ids, and those of one id in ascending order (tensor::sort_by_id).
    virtual void embedding_backward(const Tensor& ids, const Tensor& by_id, const Tensor& out_gradient,
                                    const Tensor& table_gradient, bool accumulate) = 0;

    // --- RMS norm (Zhang & Sennrich, arXiv:1910.07467) ---
    // out [N, C] = x · rstd · weight [C], rstd [N] = 1/sqrt(mean(x²) + epsilon). rstd is what the backward pass needs.
    virtual void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                                 const Tensor& rstd) = 0;
    // The same of sum = x + delta, in one pass; sum may be x or delta. The norm is of the sum as it is kept.
    virtual void add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                                     const Tensor& sum, const Tensor& out, const Tensor& rstd) = 0;
    // out again, from a known rstd (to avoid keeping it for the backward pass).
    virtual void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) = 0;
    // x_gradient [N, C] = residual_gradient + what comes through the norm; x_gradient may be residual_gradient or
    // out_gradient. An empty residual_gradient counts as zero; an empty weight_gradient is not written.
    virtual void rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                                  const Tensor& residual_gradient, const Tensor& x_gradient,
                                  const Tensor& weight_gradient, bool accumulate) = 0;

    // --- RMS norms of heads (Qwen3: Yang et al., arXiv:2505.09388) ---
    // out [N, (H + 2K)·D]: each head of query and key in qkv normed by itself, with query_weight [D] and key_weight
    // [D], and the values as they are; rstd [N, H + K].
    virtual void norm_heads(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                            const Tensor& key_weight, float epsilon, const Tensor& out, const Tensor& rstd) = 0;
    // Turns gradient [N, (H + 2K)·D], that of norm_heads' out, into that of its qkv. Weight gradients that are empty
    // are not written.
    virtual void norm_heads_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& query_weight,
                                     const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                                     const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                                     bool accumulate) = 0;

    // --- layer norm (Ba, Kiros & Hinton, arXiv:1607.06450) ---
    // out [N, C] = (x − mean) · rstd · weight [C] + bias [C]; moments [N, 2] keeps each row's mean and rstd =
    // 1/sqrt(variance + epsilon) for the backward pass.
    virtual void layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon,
                                   const Tensor& out, const Tensor& moments) = 0;
    // out again, from known moments.
    virtual void layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                                 const Tensor& out) = 0;
    // As rmsnorm_backward, with the gradient of the bias, which is not written where it is empty either.
    virtual void layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments,
                                    const Tensor& out_gradient, const Tensor& residual_gradient,
                                    const Tensor& x_gradient, const Tensor& weight_gradient,
                                    const Tensor& bias_gradient, bool accumulate) = 0;

    // --- biases and ReLU ---
    // out [N, C] = x + bias [C] + residual; an empty residual counts as zero. out may be x or residual.
    virtual void add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) = 0;
    virtual void bias_relu(const Tensor& x, const Tensor& bias) = 0;  // in place: x = max(x + bias, 0)
    // gradient = 0 where out, what bias_relu gave, is 0.
    virtual void relu_backward(const Tensor& out, const Tensor& gradient) = 0;
    // out [C] = the sum of the rows of x [N, C]: a bias's gradient.
    virtual void sum_rows(const Tensor& x, const Tensor& out, bool accumulate) = 0;

    // --- rotary positions (Su et al., arXiv:2104.09864; Hugging Face's half-split convention) ---
    // In place on the first H + K heads of qkv [B, T, (H + 2K)·D]. table [T_max, D]: cosines of D/2 frequencies, then
    // sines; positions int32 [B, T] choose its rows. Backward turns a gradient the other way.
    virtual void rope(const AttentionShape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
                      bool backward) = 0;

    // --- causal attention, scaled by 1/sqrt(D), grouped-query ---
    // Query t of a sequence sees the keys from the beginning of its document up to its own, so packed documents do not
    // see one another; without documents each sequence is one. out [B, T, H·D]. kept (kU8) is attention_kept_bytes()
    // that the forward pass writes for the backward pass, in a form of the device's own. Scratch grows with T, not with
    // its square. Where query and key were turned before, the backward pass turns their gradients back.
    //
    // In fp16 and bf16 a device may round more than what it writes, as FlashAttention-2 does for tensor cores (Dao,
    // arXiv:2307.08691): to shape.format the probabilities, or exponentials before they are divided by their sum, and
    // the gradients of scores, each before it is multiplied; and it may take what the gradients of a query's scores
    // have in common, Σ out · out_gradient, from out as it is kept. Scores and their sums stay in fp32. So
    // out and gradients are at most 1.2 times as far from fp64 as those roundings take them
    // (attention_format_test.cpp). The CPU does none of this: it rounds what it writes, once.
    virtual std::int64_t attention_kept_bytes(const AttentionShape& shape) const = 0;
    virtual std::int64_t attention_workspace_bytes(const AttentionShape& shape) const = 0;
    virtual void attention_forward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                                   const Tensor& out, const Tensor& kept, tensor::Arena& workspace) = 0;
    virtual void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Documents& documents,
                                    const Tensor& out, const Tensor& kept, const Tensor& out_gradient,
                                    const Rotation& rotation, const Tensor& qkv_gradient, tensor::Arena& workspace) = 0;
    // Generation: the queries of qkv [B, T, …] follow `past` tokens whose keys and values are in the caches
    // [B, T_max, K·D]; the new keys and values are appended to the caches. out [B, T, H·D].
    virtual void attention_cached(const AttentionShape& shape, const Tensor& qkv, std::int64_t past,
                                  const Tensor& key_cache, const Tensor& value_cache, const Tensor& out,
                                  tensor::Arena& workspace) = 0;
    virtual std::int64_t attention_cached_workspace_bytes(const AttentionShape& shape, std::int64_t keys_max) const = 0;

    // --- SwiGLU (Shazeer, arXiv:2002.05202) ---
    // out [N, F] = silu(gate) · up, with gate_up [N, 2F] holding gate then up.
    virtual void swiglu_forward(const Tensor& gate_up, const Tensor& out) = 0;
    // gate_up_gradient may be gate_up. Also writes the forward result again, into out (may be out_gradient).
    virtual void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                                 const Tensor& out) = 0;

    // --- dropout (Srivastava et al., JMLR 15, 2014) ---
    // out [N, C] = x / (1 − probability) or, with that probability, 0; out may be x. Whether an element is kept depends
    // on seed, stream and the element's index alone, counted from first_element on (Philox 4x32-10): the same call
    // again keeps the same ones, so the backward pass needs no mask.
    struct Dropout {
        double probability;  // in [0, 1)
        std::uint64_t seed;
        std::uint64_t stream;
        std::int64_t first_element;
    };
    virtual void dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) = 0;

    // --- softmax and cross entropy ---
    // Of how many tokens logits [N, vocabulary] exist at a time, at most: what the product before and the calls below
    // do best with. Above 0.
    virtual std::int64_t loss_rows(std::int64_t vocabulary) const = 0;
    // losses [N] = log(sum(exp(logits [N, V]))) − logits[target], 0 where targets (int32 [N]) is −100.
    virtual void cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) = 0;
    // Also turns logits into the gradient of gradient_scale · loss_scale · sum(losses); an empty loss_scale (fp64 [1])
    // counts as 1.
    virtual void cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                        const Tensor& loss_scale, const Tensor& losses) = 0;

    // --- optimizer steps ---
    // kernels::finish_step() of the scalars (fp64 [kStepScalars]).
    virtual void finish_step(const StepRules& rules, const Tensor& scalars) = 0;
    // By the scalars' factor and number of updates, which counts from 1; nothing changes where is_update is 0. sgd has
    // one momentum, or none. A step's ranges are best given together.
    virtual void adamw(const AdamWStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) = 0;
    virtual void sgd(const SgdStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) = 0;
    // Nesterov's direction as torch.optim.Muon takes it: the first moment becomes b = momentum · b + (1 - momentum) ·
    // g, and `weights`, which are not read, momentum · b + (1 - momentum) · g.
    virtual void nesterov(float momentum, const Tensor& scalars, std::span<const OptimizerRange> ranges) = 0;
    void adamw(const AdamWStep& step, const Tensor& scalars, const OptimizerRange& range) {
        adamw(step, scalars, std::span(&range, 1));
    }
    void sgd(const SgdStep& step, const Tensor& scalars, const OptimizerRange& range) {
        sgd(step, scalars, std::span(&range, 1));
    }

  private:
    virtual void wait_without_limit(Event event) = 0;

    Wait wait_;
    std::uint64_t waited_for_ = 0;  // by it: all events up to that number have happened
};

// The CPU with that many threads (≥ 1). An empty instruction set means that of ATOLL_INSTRUCTION_SET in the
// environment, else the widest that this machine has. kInvalidArgument when it is not offered here, kUnavailable when
// the system does not give so many threads. `products`: the format that most products will be in, for which it
// is prepared; they may be in any.
Result<std::unique_ptr<Backend>> make_cpu_backend(int threads, const std::string& instruction_set = {},
                                                  tensor::DType products = tensor::DType::kF32);
// What this build and machine offer, widest first: "avx512", "avx2", "baseline".
std::vector<std::string> cpu_instruction_sets();
// The name() of what make_cpu_backend() makes, without making it. The same error.
Result<std::string> cpu_kernels(tensor::DType products = tensor::DType::kF32);
// The processor's instructions that its products in bf16 take, "amx" or "avx512_bf16"; "" where fp32's take them.
std::string cpu_bf16_instructions();
// The GEMM libraries in this build, with their versions: "oneDNN 2.6.3", "OpenBLAS 0.3.21 Haswell".
std::vector<std::string> cpu_gemm_libraries();
// Why products without AVX-512 are not OpenBLAS' on this machine; "" where they are.
std::string cpu_gemm_warning();
// The GPU that `device` ("cuda" or "hip") and its index name; an Error in a build without a GPU backend. What is not
// `deterministic` may add up attention's gradients in an order that varies, which is faster.
Result<std::unique_ptr<Backend>> make_gpu_backend(const std::string& device, int index, bool deterministic = false);
// GPUs that this process may use, as their driver counts them; 0 in a build without a GPU backend.
int visible_gpus();

}  // namespace atl::kernels
