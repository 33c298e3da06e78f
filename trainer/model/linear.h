#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/config.h"
#include "trainer/model/lora.h"

namespace atl::model {

// The views that a linear's run takes, of those that its block was lent: its matrices', and those of the block's
// adapters, which come after the block's `own` units when there are any.
std::array<UnitView, 3> with_adapters(std::span<const UnitView> units, std::size_t matrices, std::size_t own);

// x += bias + residual; either may be empty.
void add_bias_and_residual(kernels::Backend& backend, const Tensor& bias, const Tensor& residual, const Tensor& x);

// Neighbouring matrices of a block's first unit that share their input (query, key and value): one matrix product,
// with low-rank adapters from the block's second unit on some of them, or their A from the second, which is frozen, and
// their B from the third.
//
// A run of n adapters keeps the matrices A as one [n·r, in], so that their products with the input are one as well; r
// columns of `lora_hidden` [N, n·r] = scale · dropout(x) · Aᵀ belong to each. Where ranks or scales differ, each
// adapter has a matrix [N, r] of its own there, one after another, and products of its own. W + B·A never exists. The
// adapters' small products come before the large one, which adds to theirs: it is bound by arithmetic, so that it can
// read y once more meanwhile (not measured on a GPU).
class FusedLinear {
  public:
    struct Matrix {
        std::string_view name;  // without ".weight"
        std::int64_t outputs;
    };
    // Adds the matrices to the unit, and their biases after them. `prefix` comes before their names.
    FusedLinear(const ModelConfig& config, FsdpUnit& base, std::string_view prefix,
                std::initializer_list<Matrix> matrices, std::int64_t inputs,
                Partition partition = Partition::kReplicated, bool has_bias = false);
    // Matrix number `index` of a unit, without a bias.
    FusedLinear(const FsdpUnit& base, std::size_t index);

    // The full names of the linears, "model.layers.0.self_attn.q_proj".
    std::vector<std::string> module_names(const FsdpUnit& base) const;
    // Adds the parameters of the adapters that `options` asks for: with freeze_a every A to `frozen`, else all to
    // `trained`.
    void adapt(const FsdpUnit& base, const LoraOptions& options, FsdpUnit& frozen, FsdpUnit& trained);

    // From here on the matrices are kept in a quantised format.
    void become_quantized() { is_quantized_ = true; }

    // lora_hidden or its gradient, [tokens, sum of the ranks], in the format of x; empty without adapters.
    Tensor allocate_lora_hidden(tensor::Arena& arena, tensor::DType format, std::int64_t tokens,
                                tensor::Category category) const;
    // The most scratch that a call below takes, with x in that format.
    std::int64_t workspace_bytes(const kernels::Backend& backend, tensor::DType format, std::int64_t tokens) const;

    // The views below are those of the matrices' unit and of the adapters'.
    //
    // lora_hidden, for a backward pass that did not keep it.
    void compute_lora_hidden(const Context& context, std::span<const UnitView> units, const Tensor& x,
                             const Tensor& lora_hidden) const;
    // The biases [out] of all matrices; empty where they have none. forward() does not add them: its callers do that
    // together with what comes next.
    Tensor bias(std::span<const UnitView> units) const {
        return has_bias_ ? units[0].stacked_weight(first_ + count_, count_) : Tensor();
    }
    // y [N, out] = x [N, in] · Wᵀ, plus the adapters' part; writes lora_hidden for backward.
    void forward(const Context& context, std::span<const UnitView> units, const Tensor& x, const Tensor& y,
                 const Tensor& lora_hidden) const;
    // The same, plus the biases and `residual` [N, out], which may be empty: joined to the product where it is one.
    void forward_and_add(const Context& context, std::span<const UnitView> units, const Tensor& x,
                         const Tensor& residual, const Tensor& y, const Tensor& lora_hidden) const;
    // The gradients from that of y, in three steps: that of lora_hidden [N, n·r], which the others need; that of W and
    // the biases, unless they are frozen, and of the adapters; that of x, which may lie where x was, and is not wanted
    // where x_gradient is empty.
    void backward(const Context& context, std::span<const UnitView> units, const Tensor& y_gradient, const Tensor& x,
                  const Tensor& lora_hidden, const Tensor& lora_hidden_gradient, const Tensor& x_gradient) const;
    // The steps by themselves.
    void compute_lora_hidden_gradient(const Context& context, std::span<const UnitView> units, const Tensor& y_gradient,
                                      const Tensor& lora_hidden_gradient) const;
    void compute_input_gradient(const Context& context, std::span<const UnitView> units, const Tensor& y_gradient,
                                const Tensor& lora_hidden_gradient, const Tensor& x_gradient) const;
    void compute_weight_gradient(const Context& context, std::span<const UnitView> units, const Tensor& y_gradient,
                                 const Tensor& x, const Tensor& lora_hidden, const Tensor& lora_hidden_gradient) const;

  private:
    struct Adapter {
        std::size_t a = 0, b = 0;  // the indices of its matrices in their units
        std::int64_t column = 0;   // of y, where its matrix begins
        std::int64_t columns = 0;  // of y
        std::uint64_t stream = 0;  // of random numbers, for dropout: by its name
        std::int64_t rank = 0;
        std::int64_t first = 0;  // the sum of the ranks before
        float scale = 0;
    };
    bool drops(const Context& context) const { return dropout_ > 0 && context.dropout_seed; }
    // What is left of x [N, in], or of its gradient, for one adapter.
    void drop(const Context& context, const Adapter& adapter, const Tensor& x, const Tensor& out) const;
    Tensor allocate_dropped(tensor::Arena& arena, tensor::DType format, std::int64_t tokens) const;  // [N, in]
    Tensor allocate_dequantized(tensor::Arena& arena, tensor::DType format) const;                   // [out, in]
    // handle(a matrix that a device multiplies with x in that format, the column of y where its part begins): all of
    // them as one, but quantised ones, which have factors of their own, one after another where a device takes them so.
    template <class Handle>
    void for_matrices(const Context& context, const UnitView& base, tensor::DType format, Handle&& handle) const;
    // Whether adapters write all of y, so that the product with W can add to theirs; else theirs are added to it.
    bool adapts_all() const { return adapters_.size() == count_; }
    void multiply(const Context& context, const UnitView& base, const Tensor& x, const Tensor& y,
                  bool accumulate) const;
    void multiply_back(const Context& context, const UnitView& base, const Tensor& y_gradient, const Tensor& x_gradient,
                       bool accumulate) const;
    // The adapters' part of x_gradient, in place of what is there.
    void start_input_gradient(const Context& context, std::span<const UnitView> units,
                              const Tensor& lora_hidden_gradient, const Tensor& x_gradient) const;
    void scale_hidden(const Context& context, const Tensor& lora_hidden) const;
    void compute_a_gradient(const Context& context, std::span<const UnitView> units, const Tensor& x,
                            const Tensor& lora_hidden_gradient) const;
    // The part of lora_hidden and that of y which are an adapter's.
    Tensor hidden_part(const Tensor& lora_hidden, std::size_t adapter) const;
    Tensor y_columns(const Tensor& y, std::size_t adapter) const {
        return y.column_range(adapters_[adapter].column, adapters_[adapter].columns);
    }
    // handle(number of an adapter, what is left of x for it)
    template <class Handle>
    void for_dropped(const Context& context, const Tensor& x, Handle&& handle) const;

    std::size_t first_, count_;
    bool has_bias_ = false;  // those of all matrices, right after the last one
    bool is_quantized_ = false;
    std::int64_t inputs_;
    std::int64_t outputs_ = 0;  // of all matrices
    std::size_t first_a_ = 0;
    std::size_t unit_of_b_ = 1;  // of the views; that of A is 1
    std::int64_t rank_sum_ = 0;
    bool is_even_ = true;  // all adapters have one rank and one scale
    double dropout_ = 0;
    std::vector<Adapter> adapters_;
};

}  // namespace atl::model
