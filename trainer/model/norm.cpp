#include "trainer/model/norm.h"

#include <string>

#include "trainer/model/linear.h"

namespace atl::model {

Norm::Norm(const ModelConfig& config, FsdpUnit& unit, std::string_view prefix, std::string_view name)
    : kind_(config.architecture.norm), epsilon_(static_cast<float>(config.norm_eps)), weight_(unit.parameters.size()) {
    const std::string full_name = std::string(prefix) + std::string(name);
    unit.add({.name = full_name + ".weight", .shape = {config.hidden_size}, .init = Init::kOnes, .is_norm = true});
    if (kind_ == NormKind::kRms) return;
    unit.add({.name = full_name + ".bias", .shape = {config.hidden_size}, .init = Init::kZeros, .is_norm = true});
}

Tensor Norm::allocate_statistics(tensor::Arena& arena, std::int64_t tokens, tensor::Category category) const {
    return arena.allocate(category, kernels::kStatistics, {tokens, kind_ == NormKind::kRms ? 1 : 2});
}

void Norm::forward(kernels::Backend& backend, const UnitView& unit, const Tensor& x, const Tensor& out,
                   const Tensor& statistics) const {
    if (kind_ == NormKind::kRms) return backend.rmsnorm_forward(x, unit.weight(weight_), epsilon_, out, statistics);
    backend.layernorm_forward(x, unit.weight(weight_), unit.weight(weight_ + 1), epsilon_, out, statistics);
}

void Norm::add_forward(kernels::Backend& backend, const UnitView& unit, const Tensor& bias, const Tensor& residual,
                       const Tensor& x, const Tensor& out, const Tensor& statistics) const {
    if (kind_ == NormKind::kRms && bias.empty())
        return backend.add_rmsnorm_forward(residual, x, unit.weight(weight_), epsilon_, x, out, statistics);
    add_bias_and_residual(backend, bias, residual, x);
    forward(backend, unit, x, out, statistics);
}

void Norm::apply(kernels::Backend& backend, const UnitView& unit, const Tensor& x, const Tensor& statistics,
                 const Tensor& out) const {
    if (kind_ == NormKind::kRms) return backend.rmsnorm_apply(x, unit.weight(weight_), statistics, out);
    backend.layernorm_apply(x, unit.weight(weight_), unit.weight(weight_ + 1), statistics, out);
}

void Norm::backward(kernels::Backend& backend, const UnitView& unit, const Tensor& x, const Tensor& statistics,
                    const Tensor& out_gradient, const Tensor& residual_gradient, const Tensor& x_gradient) const {
    if (kind_ == NormKind::kRms) {
        return backend.rmsnorm_backward(x, unit.weight(weight_), statistics, out_gradient, residual_gradient,
                                        x_gradient, unit.gradient(weight_), unit.accumulate());
    }
    backend.layernorm_backward(x, unit.weight(weight_), statistics, out_gradient, residual_gradient, x_gradient,
                               unit.gradient(weight_), unit.gradient(weight_ + 1), unit.accumulate());
}

HeadNorms::HeadNorms(const ModelConfig& config, FsdpUnit& unit, std::string_view prefix)
    : epsilon_(static_cast<float>(config.norm_eps)), query_(unit.parameters.size()) {
    for (const char* const name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) {
        unit.add(
            {.name = std::string(prefix) + name, .shape = {config.head_dim}, .init = Init::kOnes, .is_norm = true});
    }
}

void HeadNorms::forward(kernels::Backend& backend, const UnitView& unit, const kernels::AttentionShape& shape,
                        const Tensor& qkv, const Tensor& out, const Tensor& rstd) const {
    backend.norm_heads(shape, qkv, unit.weight(query_), unit.weight(query_ + 1), epsilon_, out, rstd);
}

void HeadNorms::backward(kernels::Backend& backend, const UnitView& unit, const kernels::AttentionShape& shape,
                         const Tensor& qkv, const Tensor& rstd, const Tensor& gradient) const {
    backend.norm_heads_backward(shape, qkv, unit.weight(query_), unit.weight(query_ + 1), rstd, gradient,
                                unit.gradient(query_), unit.gradient(query_ + 1), unit.accumulate());
}

}  // namespace atl::model
