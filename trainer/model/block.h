#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/formats.h"
#include "trainer/model/batch.h"
#include "trainer/model/slice.h"
#include "trainer/tensor/arena.h"

namespace atl::model {

using tensor::Tensor;

enum class Init : std::uint8_t { kNormal, kOnes, kUniform, kZeros };
// How tensor parallelism cuts a parameter: not at all, by rows of the [out, in] matrix (column-parallel in Megatron's
// words, Shoeybi et al., arXiv:1909.08053) or by its columns (row-parallel).
enum class Partition : std::uint8_t { kReplicated, kRows, kColumns };

// One tensor of the checkpoint.
struct Parameter {
    std::string name;                            // Hugging Face's, "model.layers.0.self_attn.q_proj.weight"
    std::vector<std::int64_t> shape;             // of what this model has of it
    std::vector<std::int64_t> whole_shape = {};  // of the tensor, where the model has a slice of it; else empty
    std::int64_t first_row = 0;                  // of the slice
    std::int64_t first_column = 0;
    Init init = Init::kNormal;
    float init_deviation = 0.02F;  // kNormal; of kUniform the largest magnitude
    Partition partition = Partition::kReplicated;
    bool is_norm = false;     // a norm's or a bias: what --no-decay-norms leaves out of weight decay
    std::int64_t offset = 0;  // elements from the start of its unit's flat buffer
    std::int64_t extent = 0;  // elements of that buffer; element_count(), or bytes in a unit of bytes
    // What it is kept in where the unit's storage is bytes: fp32, or a quantised format.
    tensor::DType stored = tensor::DType::kF32;

    std::int64_t element_count() const;
    // From here on the parameter is part number `part` of `parts` equal ones, as `partition` cuts it.
    void become_part(int part, int parts);
    bool is_slice() const { return !whole_shape.empty(); }
    const std::vector<std::int64_t>& shape_in_file() const { return is_slice() ? whole_shape : shape; }
    Slice slice() const;
};

// Parameters that are gathered, reduced and updated together: one flat buffer, the parameters one after another
// without gaps. (So query, key and value, and gate and up, are also one matrix each.)
struct FsdpUnit {
    std::string name;  // "embedding", "layers.0", "head"
    std::vector<Parameter> parameters;
    std::int64_t element_count = 0;
    bool frozen = false;                          // only read: no gradients, no moments
    bool is_layer = false;                        // of a decoder layer, not of embedding or head
    bool is_adapter = false;                      // kept in the files of an adapter, not in those of the model
    tensor::DType storage = tensor::DType::kF32;  // the format that the weights are kept in; a driver may change it

    bool is_quantized() const { return storage == tensor::DType::kU8; }
    void add(Parameter parameter);  // sets its offset and extent
    // Keeps the matrices in a quantised format and the rest in fp32, in one flat buffer of bytes. The unit is frozen.
    void quantize(tensor::DType format);
};

// The flat buffers of one unit while a block runs, lent by the driver.
class UnitView {
  public:
    UnitView() = default;
    // weights [element_count] in the unit's storage format, none for a block that does not read them; gradients
    // [element_count], none in a forward pass and of a frozen unit.
    // With accumulate the block adds to the gradients, else it overwrites them.
    UnitView(const FsdpUnit& unit, const Tensor& weights, const Tensor& gradients = {}, bool accumulate = false);

    Tensor weight(std::size_t index) const { return view(weights_, index, 1); }
    Tensor gradient(std::size_t index) const { return view(gradients_, index, 1); }
    // Whether matrices are kept apart, so that they cannot be stacked.
    bool is_quantized() const { return weights_.dtype() == tensor::DType::kU8; }
    // `count` neighbouring matrices of as many columns, stacked: [sum of rows, columns]; or vectors, joined: [1, sum].
    Tensor stacked_weight(std::size_t first, std::size_t count) const { return view(weights_, first, count); }
    Tensor stacked_gradient(std::size_t first, std::size_t count) const { return view(gradients_, first, count); }
    bool accumulate() const { return accumulate_; }
    // What tells two views of a unit apart.
    void append_to(std::vector<std::uint64_t>& key) const;
    UnitView accumulating() const;                       // the same, but the block adds to its gradients
    bool trains() const { return !gradients_.empty(); }  // in a backward pass: false when the unit is frozen

  private:
    Tensor view(const Tensor& flat, std::size_t first, std::size_t count) const;
    const FsdpUnit* unit_ = nullptr;
    Tensor weights_;
    Tensor gradients_;
    bool accumulate_ = false;
};

// What a block may use while it runs.
struct Context {
    kernels::Backend& backend;
    tensor::Arena& workspace;  // scratch; given back before the block returns
    const Batch& batch;
    // False when nothing before this block trains: backward may leave the input's gradient undefined.
    bool input_gradient_needed = true;
    // In training what adapters' dropout draws from; absent: nothing is dropped. What is dropped depends on this, on
    // where a sequence stands in the training's order and on the linear's name, so not on the ranks.
    std::optional<std::uint64_t> dropout_seed = {};
    std::int64_t first_token = 0;  // of the batch, where a block handles its tokens in pieces: also for dropout
    // Called between the products, so that the driver's transfers get on while a block computes; null: nobody is.
    const std::function<void()>* progress = nullptr;
    void make_progress() const {
        if (progress != nullptr) (*progress)();
    }
};

// What the head writes and how it scales.
struct Loss {
    Tensor token_losses;  // [N], 0 where a target is not counted
    // The gradient is that of gradient_scale · loss_scale · sum(token_losses).
    float gradient_scale = 1.0F;  // usually 1 / targets
    Tensor loss_scale = {};       // fp64 [1]; empty: 1
};

// The keys and values that one layer has seen so far, for generation.
struct LayerCache {
    Tensor keys;    // [B, T_max, K·D]
    Tensor values;  // [B, T_max, K·D]
    std::int64_t past = 0;
};

class FusedLinear;

// What a block keeps of its forward pass until its backward pass, besides its input. The backward pass reads more than
// that: recompute() writes the rest again, up to what backward reads last.
enum class Keep : std::uint8_t {
    kAll,
    kWithoutFeedForward,  // all but what the feed-forward's first product gives: SwiGLU's gate and up, or ReLU's result
    kAttention,           // attention's output and what it keeps itself
    kInput,               // nothing
};

// Where a block saves what its backward pass reads, lent by the driver: what it keeps, and the rest, which other blocks
// may overwrite until recompute() writes it again. Both aligned to tensor::kAlignmentBytes; null in evaluation.
struct SavedMemory {
    Keep keep = Keep::kAll;
    std::byte* kept = nullptr;
    std::byte* rest = nullptr;
    bool empty() const { return kept == nullptr && rest == nullptr; }
};
struct SavedBytes {
    std::int64_t kept = 0;
    std::int64_t rest = 0;
};

// The stages of a model, run one after another by a driver: embedding, decoder layers, head. A block has no state: its
// weights, gradients, input, output and saved activations are lent to it, so a driver can shard, gather, offload,
// recompute what is saved or pipeline as it likes.
//
// Activations between blocks are [N, C] in Formats::residual. The embedding has no input and the head no output: those
// are empty.
class Block {
  public:
    virtual ~Block() = default;
    const std::string& name() const { return name_; }
    // Indices into Model::units; forward and backward get their views in this order. A unit may serve two blocks (a
    // tied embedding): its gradient is complete when backward of the first of them is done.
    const std::vector<std::size_t>& units() const { return units_; }

    // What adapters may be given to; their matrices are in the first of the units. The adapters that were made for
    // them are in another unit, or two, which become the block's last.
    virtual std::vector<FusedLinear*> linears() { return {}; }
    void use_adapters(std::size_t unit) { units_.push_back(unit); }
    // One of the decoder's layers: what saves something, and whose matrices may be kept in a quantised format.
    virtual bool is_layer() const { return false; }

    // What the block allocates and is lent is in these; fp32 unless said otherwise. Before anything is measured.
    void use_formats(const kernels::Formats& formats) { formats_ = formats; }

    // Bytes that forward saves for backward besides the input, and the most scratch that either takes. Exact. In
    // evaluation (`saves` false) forward has scratch for what it would save.
    virtual SavedBytes saved_bytes(const kernels::Backend&, const BatchShape&, Keep) const { return {}; }
    virtual std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                         bool saves) const = 0;

    // saved: of saved_bytes(); empty in evaluation. loss is for the head only. In evaluation and generation output may
    // be input.
    virtual void forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                         const Tensor& output, const SavedMemory& saved, const Loss* loss) const = 0;
    // Writes saved.rest once more, from the input and saved.kept; what backward does not read is not computed. For
    // layers.
    virtual void recompute(const Context& context, std::span<const UnitView> units, const Tensor& input,
                           const SavedMemory& saved) const;
    // Writes the gradients of the units and input_gradient, which may be output_gradient. May destroy what was saved.
    virtual void backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                          const SavedMemory& saved, const Tensor& output_gradient, const Tensor& input_gradient,
                          const Loss* loss) const = 0;
    // True for the head: its backward computes the losses as well, so a training step leaves out its forward.
    virtual bool backward_includes_forward() const { return false; }

    // False: its views may have no weights then.
    virtual bool backward_reads_weights() const { return true; }

    // Generation: the tokens are those after cache.past (only layers use the cache). The head writes the logits of each
    // sequence's last token, [B, V], into output.
    virtual void infer(const Context& context, std::span<const UnitView> units, const Tensor& input,
                       const Tensor& output, LayerCache& cache) const = 0;
    virtual std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                               std::int64_t keys_max) const = 0;

    // Floating-point operations of forward for this shape, counting a multiply-add as two; products and attention only.
    virtual double forward_flops(const BatchShape& shape) const = 0;
    virtual double recompute_flops(const BatchShape&, Keep) const { return 0; }

  protected:
    // Appends a unit of the same name to the model's; the block's constructor fills it.
    Block(std::string name, std::vector<FsdpUnit>& units);

    std::string name_;
    std::vector<std::size_t> units_;
    kernels::Formats formats_;
};

}  // namespace atl::model
