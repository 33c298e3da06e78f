#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/chunked_loss.h"
#include "trainer/model/config.h"
#include "trainer/model/linear.h"
#include "trainer/model/norm.h"

// The blocks of all decoders; ModelConfig::architecture says how families differ. Legend as in kernels/backend.h: N
// tokens, C hidden channels, H query heads, K key/value heads, D head channels, F feed-forward channels, V vocabulary;
// P channels of the embedding, which are C unless OPT's word_embed_proj_dim says otherwise.
namespace atl::model {

// x [N, C] = project_in(table [V, P] at input_ids), plus table of positions [T_max + 2, C] at positions + 2 where they
// are learned. Without project_in P is C.
class EmbeddingBlock final : public Block {
  public:
    // Appends the table's unit, and that of learned positions and project_in.
    EmbeddingBlock(const ModelConfig& config, std::vector<FsdpUnit>& units);
    std::vector<FusedLinear*> linears() override;
    std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const override;
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 const SavedMemory& saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                  const SavedMemory& saved, const Tensor& output_gradient, const Tensor& input_gradient,
                  const Loss* loss) const override;
    bool backward_reads_weights() const override { return project_in_.has_value(); }
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                       std::int64_t keys_max) const override;
    double forward_flops(const BatchShape& shape) const override;

  private:
    struct Scratch {
        Tensor positions;                // [N, C]
        Tensor tokens, token_gradients;  // [N, P]; with project_in only, as what follows
        Tensor lora_hidden, lora_hidden_gradient;
    };
    Scratch allocate_scratch(tensor::Arena& arena, std::int64_t tokens) const;
    // Of this block's units, those that are not of adapters; the table's is the last of them.
    std::size_t own_units() const { return learns_positions_ ? 2 : 1; }

    bool learns_positions_;
    std::optional<FusedLinear> project_in_;
    std::int64_t hidden_, embedding_;
};

// The widths of a layer.
struct LayerWidths {
    std::int64_t hidden;         // C
    std::int64_t heads;          // H
    std::int64_t kv_heads;       // K
    std::int64_t head_channels;  // D
    std::int64_t feed_forward;   // F

    std::int64_t queries() const { return heads * head_channels; }
    std::int64_t keys() const { return kv_heads * head_channels; }
    std::int64_t qkv() const { return queries() + 2 * keys(); }
};

// h = x + out(attention(rope(norms of heads(qkv(norm(x))))));  y = h + down(activation(up(norm(h)))). With SwiGLU `up`
// is gate and up.
class DecoderBlock final : public Block {
  public:
    // Appends the layer's unit.
    DecoderBlock(const ModelConfig& config, std::int64_t layer, std::vector<FsdpUnit>& units);
    std::vector<FusedLinear*> linears() override { return {&qkv_, &out_, &up_, &down_}; }
    bool is_layer() const override { return true; }
    SavedBytes saved_bytes(const kernels::Backend& backend, const BatchShape& shape, Keep keep) const override;
    std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const override;
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 const SavedMemory& saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                  const SavedMemory& saved, const Tensor& output_gradient, const Tensor& input_gradient,
                  const Loss* loss) const override;
    void recompute(const Context& context, std::span<const UnitView> units, const Tensor& input,
                   const SavedMemory& saved) const override;
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                       std::int64_t keys_max) const override;
    double forward_flops(const BatchShape& shape) const override;
    double recompute_flops(const BatchShape& shape, Keep keep) const override;

  private:
    // Backward reads these of forward. The norms' results and SwiGLU's are computed again there: that costs little
    // time and saves a quarter of the memory.
    struct Saved {
        Tensor input_statistics;   // of the norm
        Tensor qkv;                // [N, (H + 2K)·D], rotated; with norms of heads as it comes from the products
        Tensor attention;          // [N, H·D]
        Tensor attention_kept;     // by the backend, bytes
        Tensor hidden;             // [N, C]: h
        Tensor hidden_statistics;  // of the norm
        // SwiGLU: gate and up [N, 2F], which backward turns into their gradient. ReLU: its result [N, F].
        Tensor up;
        Tensor qkv_lora_hidden, out_lora_hidden, up_lora_hidden, down_lora_hidden;  // empty without adapters
    };
    struct AttentionScratch {
        Tensor normed;              // [N, C], then its gradient
        Tensor normed_heads;        // [N, (H + 2K)·D], rotated; with norms of heads only, as what follows
        Tensor head_rstd;           // [N, H + K]
        Tensor hidden_gradient;     // [N, C]; backward only, as what follows; where residuals have another format
        Tensor attention_gradient;  // [N, H·D]
        Tensor qkv_gradient;        // [N, (H + 2K)·D]
        Tensor qkv_lora_hidden_gradient, out_lora_hidden_gradient;
    };
    struct FeedForwardScratch {
        Tensor normed;           // [N, C], then its gradient
        Tensor activation;       // [N, F], in backward first its gradient; ReLU: only that, in backward only
        Tensor output_gradient;  // [N, C]; backward only, as what follows; where residuals have another format
        Tensor up_lora_hidden_gradient, down_lora_hidden_gradient;
    };
    Saved allocate_saved(tensor::Arena& kept, tensor::Arena& rest, const kernels::Backend& backend,
                         const BatchShape& shape, Keep keep) const;
    Saved find_saved(const SavedMemory& saved, const Context& context) const;
    // In scratch, for passes that nothing follows.
    Saved allocate_unsaved(const Context& context) const;
    AttentionScratch allocate_attention(tensor::Arena& arena, std::int64_t tokens, bool backward) const;
    FeedForwardScratch allocate_feed_forward(tensor::Arena& arena, std::int64_t tokens, bool backward) const;
    kernels::AttentionShape attention_shape(const BatchShape& shape) const;
    // workspace_bytes() where attention takes so many.
    std::int64_t scratch_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves,
                               std::int64_t attention_bytes) const;
    double attention_flops(const BatchShape& shape) const;  // of one forward pass

    // `units`: the layer's, then its adapters'.
    //
    // saved.qkv from x, before it is rotated.
    void qkv_forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Saved& saved,
                     const AttentionScratch& scratch) const;
    void attention_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                           const Saved& saved, LayerCache* cache) const;
    // Query, key and value as attention takes them, from saved.qkv: with norms of heads in scratch, else where they
    // lie, as the forward pass left them for the backward pass.
    Tensor attention_input(const Context& context, std::span<const UnitView> units, const Saved& saved,
                           const AttentionScratch& scratch, bool backward) const;
    // h from x and attention, and its norm in scratch.
    void hidden_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                        const Saved& saved, const FeedForwardScratch& scratch) const;
    // From that norm what the activation takes (of ReLU, what it gives).
    void up_forward(const Context& context, std::span<const UnitView> units, const Saved& saved,
                    const FeedForwardScratch& scratch) const;
    void feed_forward_forward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                              const Saved& saved, const Tensor& output) const;
    void feed_forward_backward(const Context& context, std::span<const UnitView> units, const Saved& saved,
                               const Tensor& residual_gradient, const Tensor& hidden_gradient) const;
    void attention_backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                            const Saved& saved, const Tensor& hidden_gradient, const Tensor& input_gradient) const;

    LayerWidths widths_;
    bool rotates_, is_gated_;  // rope; SwiGLU
    // In the order of their parameters.
    Norm attention_norm_;
    FusedLinear qkv_;
    std::optional<HeadNorms> head_norms_;
    FusedLinear out_;
    Norm feed_forward_norm_;
    FusedLinear up_, down_;
};

// losses [N] = cross entropy of lm_head(project_out(norm(x))) [N, V] with the targets, a chunk of tokens at a time: the
// logits of all tokens never exist together. With a tied embedding lm_head is the embedding's table. Without
// project_out P is C.
class HeadBlock final : public Block {
  public:
    // Appends the head's unit. The embedding's is the first, unless `has_embedding` is false.
    HeadBlock(const ModelConfig& config, std::vector<FsdpUnit>& units, bool has_embedding);
    // The table unless it is the embedding's, and project_out.
    std::vector<FusedLinear*> linears() override;
    std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const override;
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 const SavedMemory& saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input,
                  const SavedMemory& saved, const Tensor& output_gradient, const Tensor& input_gradient,
                  const Loss* loss) const override;
    bool backward_includes_forward() const override { return true; }
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                       std::int64_t keys_max) const override;
    double forward_flops(const BatchShape& shape) const override;

  private:
    struct Scratch {
        Tensor normed;             // [N, C]
        Tensor statistics;         // of the norm
        Tensor features;           // [N, P]: normed, or project_out of it
        Tensor feature_gradients;  // [N, P]; with project_out only, as what follows
        Tensor lora_hidden, lora_hidden_gradient;
        LossScratch loss;
    };
    Scratch allocate_scratch(tensor::Arena& arena, const kernels::Backend& backend, const BatchShape& shape) const;
    void compute_features(const Context& context, std::span<const UnitView> units, const Tensor& input,
                          const Scratch& scratch) const;
    // Of this block's units, those that are not of adapters; the table's is the last of them.
    std::size_t own_units() const { return shares_table_ ? 2 : 1; }
    // The views that the table and project_out take: of their unit, and of the adapters.
    std::array<UnitView, 3> table_units(std::span<const UnitView> units) const {
        return with_adapters(units, own_units() - 1, own_units());
    }
    std::array<UnitView, 3> project_units(std::span<const UnitView> units) const {
        return with_adapters(units, 0, own_units());
    }

    bool is_tied_;
    bool shares_table_;  // the embedding's; a tied head may have one of its own
    std::int64_t hidden_, embedding_, vocabulary_;
    // In the order of their parameters.
    Norm norm_;
    std::optional<FusedLinear> project_out_;
    FusedLinear table_;
};

}  // namespace atl::model
