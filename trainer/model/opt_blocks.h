#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/chunked_loss.h"
#include "trainer/model/config.h"
#include "trainer/model/linear.h"

// The blocks of OPT (Zhang et al., arXiv:2205.01068) as transformers has them: learned positions, layer norms before
// attention and feed-forward, biases everywhere, ReLU. Legend as in kernels/backend.h; P channels of the embedding
// (word_embed_proj_dim).
namespace atl::model {

// x [N, C] = project_in(table [V, P] at input_ids) + position_table [T_max + 2, C] at positions + 2. Without
// project_in P is C.
class OptEmbeddingBlock final : public Block {
  public:
    // `units`: that of the positions and project_in, then the table's.
    OptEmbeddingBlock(const ModelConfig& config, std::vector<std::size_t> units);
    static FsdpUnit make_positions_group(const ModelConfig& config);

    const std::string& name() const override { return name_; }
    const std::vector<std::size_t>& units() const override { return units_; }
    std::int64_t saved_bytes(const BatchShape&) const override { return 0; }
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
    std::span<FusedLinear> linears() override { return project_in_; }
    void use_adapters(std::size_t unit) override { units_.push_back(unit); }

  private:
    struct Scratch {
        Tensor tokens;                             // [N, P]
        Tensor token_gradients;                    // [N, P]; with project_in only
        Tensor positions;                          // [N, C]; without project_in tokens again
        Tensor lora_hidden, lora_hidden_gradient;  // of project_in's adapter
    };
    Scratch allocate_scratch(tensor::Arena& arena, std::int64_t rows) const;
    void project_backward(const Context& context, std::span<const UnitView> units, const Tensor& output_gradient) const;

    std::string name_ = "embedding";
    std::vector<std::size_t> units_;
    std::vector<FusedLinear> project_in_;  // or nothing
    std::int64_t hidden_, embedding_, positions_;
};

// h = x + out_proj(attention(qkv_proj(norm(x))));  y = h + fc2(relu(fc1(norm(h)))).
class OptBlock final : public Block {
  public:
    OptBlock(const ModelConfig& config, std::int64_t layer, std::size_t unit);
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
    struct Saved {
        Tensor input_moments;               // [N, 2]
        Tensor qkv;                         // [N, 3C]
        Tensor attention;                   // [N, C]
        Tensor log_sum_exp;                 // [B, H, T]
        Tensor hidden;                      // [N, C]: h
        Tensor hidden_moments;              // [N, 2]
        Tensor activation;                  // [N, F]: after ReLU
        std::array<Tensor, 4> lora_hidden;  // of each run's adapters, [N, n·r]; empty without
    };
    struct AttentionScratch {
        Tensor normed;                    // [N, C], then its gradient
        Tensor attention_gradient;        // [N, C], backward only
        Tensor qkv_gradient;              // [N, 3C], backward only
        Tensor qkv_lora_hidden_gradient;  // backward only, as all gradients of lora_hidden
        Tensor out_low_gradient;
    };
    struct FeedForwardScratch {
        Tensor normed;               // [N, C], then its gradient
        Tensor activation_gradient;  // [N, F], backward only
        Tensor first_low_gradient;
        Tensor second_low_gradient;
    };
    Saved allocate_saved(tensor::Arena& arena, const BatchShape& shape, tensor::Category category) const;
    AttentionScratch allocate_attention(tensor::Arena& arena, std::int64_t rows, bool backward) const;
    FeedForwardScratch allocate_feed_forward(tensor::Arena& arena, std::int64_t rows, bool backward) const;
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
    std::vector<FusedLinear> linears_;  // query, key and value; out; first; second
    std::int64_t hidden_, feed_forward_, heads_;
    float epsilon_;
};

// losses [N] = cross entropy of lm_head(project_out(norm(x))) [N, V] with the targets, in chunks as HeadBlock. With a
// tied embedding lm_head is the embedding's unit.
class OptHeadBlock final : public Block {
  public:
    // As HeadBlock's; its matrix is [V, P].
    OptHeadBlock(const ModelConfig& config, std::vector<std::size_t> units, const FsdpUnit& table, std::size_t index);
    static FsdpUnit make_group(const ModelConfig& config);

    const std::string& name() const override { return name_; }
    const std::vector<std::size_t>& units() const override { return units_; }
    std::int64_t saved_bytes(const BatchShape&) const override { return 0; }
    std::int64_t workspace_bytes(const kernels::Backend& backend, const BatchShape& shape, bool saves) const override;
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
                 std::byte* saved, const Loss* loss) const override;
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& input, std::byte* saved,
                  const Tensor& output_gradient, const Tensor& input_gradient, const Loss* loss) const override;
    // project_out, and the matrix unless it is the embedding's.
    std::span<FusedLinear> linears() override { return std::span(linears_).subspan(is_tied_ ? 1 : 0); }
    void use_adapters(std::size_t unit) override { units_.push_back(unit); }
    bool backward_includes_forward() const override { return true; }
    void infer(const Context& context, std::span<const UnitView> units, const Tensor& input, const Tensor& output,
               LayerCache& cache) const override;
    std::int64_t infer_workspace_bytes(const kernels::Backend& backend, const BatchShape& shape,
                                       std::int64_t keys_max) const override;
    double forward_flops(const BatchShape& shape) const override;

  private:
    struct Scratch {
        Tensor normed;                             // [N, C]
        Tensor moments;                            // [N, 2]
        Tensor features;                           // [N, P]: normed, or project_out of it
        Tensor feature_gradients;                  // [N, P]; with project_out only
        Tensor lora_hidden, lora_hidden_gradient;  // of project_out's adapter
        LossScratch loss;
    };
    Scratch allocate_scratch(tensor::Arena& arena, const BatchShape& shape) const;
    void compute_features(const Context& context, std::span<const UnitView> units, const Tensor& input,
                          const Scratch& scratch) const;
    std::size_t own_groups() const { return is_tied_ ? 2 : 1; }  // those before the adapters
    // The views that the matrix takes: of its unit, and of the adapters.
    std::array<UnitView, 2> table_groups(std::span<const UnitView> units) const {
        return with_adapters(units, own_groups() - 1, own_groups());
    }
    std::array<UnitView, 2> project_groups(std::span<const UnitView> units) const {
        return with_adapters(units, 0, own_groups());
    }
    bool projects() const { return linears_.size() > 1; }
    const FusedLinear& table() const { return linears_[0]; }
    const FusedLinear& project_out() const { return linears_[1]; }

    std::string name_ = "head";
    std::vector<std::size_t> units_;
    bool is_tied_;                      // the matrix is that of another unit, the last without adapters
    std::vector<FusedLinear> linears_;  // the matrix, then project_out if there is one
    std::int64_t hidden_, embedding_, vocabulary_;
    float epsilon_;
};

}  // namespace atl::model
