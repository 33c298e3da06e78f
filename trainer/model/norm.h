#pragma once

#include <string_view>

#include "trainer/model/block.h"
#include "trainer/model/config.h"

namespace atl::model {

// RMSNorm, which has a weight [C], or LayerNorm, which has a bias [C] too. Its statistics are what backward needs of
// each token: 1/RMS, or mean and 1/deviation. Inside trainer/model only.
class Norm {
  public:
    // Adds its parameters to `unit`, whose view the functions below take. `name` is without ".weight".
    Norm(const ModelConfig& config, FsdpUnit& unit, std::string_view prefix, std::string_view name);

    Tensor allocate_statistics(tensor::Arena& arena, std::int64_t tokens, tensor::Category category) const;
    void forward(kernels::Backend& backend, const UnitView& unit, const Tensor& x, const Tensor& out,
                 const Tensor& statistics) const;
    // x += bias + residual, then as forward; `bias` may be empty.
    void add_forward(kernels::Backend& backend, const UnitView& unit, const Tensor& bias, const Tensor& residual,
                     const Tensor& x, const Tensor& out, const Tensor& statistics) const;
    // out again, from known statistics.
    void apply(kernels::Backend& backend, const UnitView& unit, const Tensor& x, const Tensor& statistics,
               const Tensor& out) const;
    // As kernels::Backend::rmsnorm_backward.
    void backward(kernels::Backend& backend, const UnitView& unit, const Tensor& x, const Tensor& statistics,
                  const Tensor& out_gradient, const Tensor& residual_gradient, const Tensor& x_gradient) const;

  private:
    NormKind kind_;
    float epsilon_;
    std::size_t weight_;  // its place in the unit; the bias follows
};

// RMS norms of each head of query and key, as Backend::norm_heads, with two weights [D]. Inside trainer/model only.
class HeadNorms {
  public:
    // Adds its parameters to `unit`, whose view the functions below take.
    HeadNorms(const ModelConfig& config, FsdpUnit& unit, std::string_view prefix);

    void forward(kernels::Backend& backend, const UnitView& unit, const kernels::AttentionShape& shape,
                 const Tensor& qkv, const Tensor& out, const Tensor& rstd) const;
    // `gradient`, that of out, becomes that of qkv.
    void backward(kernels::Backend& backend, const UnitView& unit, const kernels::AttentionShape& shape,
                  const Tensor& qkv, const Tensor& rstd, const Tensor& gradient) const;

  private:
    float epsilon_;
    std::size_t query_;  // its weight's place in the unit; that of the keys follows
};

}  // namespace atl::model
