#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/chunked_loss.h"
#include "trainer/model/config.h"
#include "trainer/model/linear.h"

// The blocks of Llama (Touvron et al., arXiv:2302.13971). Legend as in kernels/backend.h: N rows, C hidden channels,
// H query heads, K key/value heads, D head channels, F feed-forward channels, V vocabulary.
namespace atl::model {

// x [N, C] = table [V, C] at input_ids.
class EmbeddingBlock final : public Block {
  public:
    EmbeddingBlock(const ModelConfig& config, std::size_t unit);
    const std::string& name() const override { return name_; }
    const std::vector<std::size_t>& units() const override { return units_; }
    std::int64_t saved_bytes(const BatchShape&) const override { return 0; }
    std::int64_t workspace_bytes(const kernels::Backend&, const BatchShape&, bool) const override { return 0; }
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 std::byte* saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte* saved,
                  const Tensor& output_gradient, const Tensor& input_gradient, const Loss* loss) const override;
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend&, const BatchShape&, std::int64_t) const override {
        return 0;
    }
    double forward_flops(const BatchShape&) const override { return 0; }

  private:
    std::string name_ = "embedding";
    std::vector<std::size_t> units_;
    std::int64_t hidden_;
};

// h = x + o_proj(attention(rope(qkv_proj(norm(x)))));  y = h + down_proj(swiglu(gate_up_proj(norm(h)))).
class DecoderBlock final : public Block {
  public:
    DecoderBlock(const ModelConfig& config, std::int64_t layer, std::size_t unit);
    static FsdpUnit make_group(const ModelConfig& config, std::int64_t layer);

    const std::string& name() const override { return name_; }
    const std::vector<std::size_t>& units() const override { return units_; }
    std::span<FusedLinear> linears() override { return linears_; }
    void use_adapters(std::size_t unit) override { units_.push_back(unit); }
    bool is_layer() const override { return true; }
    std::int64_t saved_bytes(const BatchShape& shape) const override;
    std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const override;
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 std::byte* saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte* saved,
                  const Tensor& output_gradient, const Tensor& input_gradient, const Loss* loss) const override;
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                       std::int64_t keys_max) const override;
    double forward_flops(const BatchShape& shape) const override;

  private:
    // Forward keeps these for backward. The norms' results and the feed-forward activation are computed again there:
    // that costs little time and saves a quarter of the memory.
    struct Saved {
        Tensor input_rstd;                  // [N]
        Tensor qkv;                         // [N, (H + 2K)·D], rotated
        Tensor attention;                   // [N, H·D]
        Tensor log_sum_exp;                 // [B, H, T]
        Tensor hidden;                      // [N, C]: h
        Tensor hidden_rstd;                 // [N]
        Tensor gate_up;                     // [N, 2F]; backward turns it into its gradient
        std::array<Tensor, 4> lora_hidden;  // of each run's adapters, [N, n·r]; empty without
    };
    struct AttentionScratch {
        Tensor normed;                    // [N, C], then its gradient
        Tensor attention_gradient;        // [N, H·D], backward only
        Tensor qkv_gradient;              // [N, (H + 2K)·D], backward only
        Tensor qkv_lora_hidden_gradient;  // backward only, as all gradients of lora_hidden
        Tensor out_low_gradient;
    };
    struct FeedForwardScratch {
        Tensor normed;      // [N, C], then its gradient
        Tensor activation;  // [N, F]
        Tensor gate_up_low_gradient;
        Tensor down_low_gradient;
    };
    Saved allocate_saved(tensor::Arena& arena, const BatchShape& shape, tensor::Category category) const;
    AttentionScratch allocate_attention(tensor::Arena& arena, std::int64_t rows, bool backward) const;
    FeedForwardScratch allocate_feed_forward(tensor::Arena& arena, std::int64_t rows) const;
    kernels::AttentionShape attention_shape(const BatchShape& shape) const;

    using Groups = std::span<const UnitView>;  // the layer's, then its adapters'
    void attention_forward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                           LayerCache* cache) const;
    void feed_forward_forward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                              const Tensor& output) const;
    void feed_forward_backward(const Context& context, Groups units, const Saved& saved, const Tensor& output_gradient,
                               const Tensor& hidden_gradient) const;
    void attention_backward(const Context& context, Groups units, const Tensor& input, const Saved& saved,
                            const Tensor& hidden_gradient, const Tensor& input_gradient) const;

    std::string name_;
    std::vector<std::size_t> units_;
    std::vector<FusedLinear> linears_;  // query, key and value; out; gate and up; down
    std::int64_t hidden_, feed_forward_, heads_, kv_heads_, head_channels_;
    float epsilon_;
};

// losses [N] = cross entropy of lm_head(norm(x)) [N, V] with the targets, a chunk of rows at a time: the logits of all
// rows never exist together. With a tied embedding lm_head is the embedding's unit.
class HeadBlock final : public Block {
  public:
    // units: that of the norm, and that of the matrix [V, C] where it is another, `table`'s; there it is the matrix
    // number `index`.
    HeadBlock(const ModelConfig& config, std::vector<std::size_t> units, const FsdpUnit& table, std::size_t index);
    const std::string& name() const override { return name_; }
    const std::vector<std::size_t>& units() const override { return units_; }
    std::int64_t saved_bytes(const BatchShape&) const override { return 0; }
    std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const override;
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 std::byte* saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte* saved,
                  const Tensor& output_gradient, const Tensor& input_gradient, const Loss* loss) const override;
    // The matrix, unless it is the embedding's.
    std::span<FusedLinear> linears() override { return is_tied_ ? std::span<FusedLinear>() : std::span(&table_, 1); }
    void use_adapters(std::size_t unit) override { units_.push_back(unit); }
    bool backward_includes_forward() const override { return true; }
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                       std::int64_t keys_max) const override;
    double forward_flops(const BatchShape& shape) const override;

  private:
    struct Scratch {
        Tensor normed;  // [N, C]
        Tensor rstd;    // [N]
        LossScratch loss;
    };
    Scratch allocate_scratch(tensor::Arena& arena, const BatchShape& shape) const;
    std::size_t own_groups() const { return is_tied_ ? 2 : 1; }  // those before the adapters
    // The views that the matrix takes: of its unit, and of the adapters.
    std::array<UnitView, 2> table_groups(std::span<const UnitView> units) const {
        return with_adapters(units, own_groups() - 1, own_groups());
    }

    std::string name_ = "head";
    std::vector<std::size_t> units_;
    bool is_tied_;  // the matrix is that of another unit, the last without adapters
    FusedLinear table_;
    std::int64_t hidden_, vocabulary_;
    float epsilon_;
};

}  // namespace atl::model
