#include "trainer/model/linear.h"

#include <algorithm>
#include <cmath>

#include "trainer/model/initialize.h"

namespace atl::model {

std::array<UnitView, 3> with_adapters(std::span<const UnitView> units, std::size_t matrices, std::size_t own) {
    const auto or_none = [&](std::size_t unit) { return unit < units.size() ? units[unit] : UnitView(); };
    return {units[matrices], or_none(own), or_none(own + 1)};
}

void add_bias_and_residual(kernels::Backend& backend, const Tensor& bias, const Tensor& residual, const Tensor& x) {
    if (!bias.empty()) return backend.add_bias(x, bias, residual, x);
    if (!residual.empty()) backend.add(residual, x, x);
}

FusedLinear::FusedLinear(const ModelConfig& config, FsdpUnit& base, std::string_view prefix,
                         std::initializer_list<Matrix> matrices, std::int64_t inputs, Partition partition,
                         bool has_bias)
    : first_(base.parameters.size()), count_(matrices.size()), has_bias_(has_bias), inputs_(inputs) {
    const auto full_name = [&](const Matrix& matrix) { return std::string(prefix) + std::string(matrix.name); };
    for (const Matrix& matrix : matrices) {
        outputs_ += matrix.outputs;
        base.add({.name = full_name(matrix) + ".weight",
                  .shape = {matrix.outputs, inputs},
                  .init_deviation = static_cast<float>(config.initializer_range),
                  .partition = partition});
    }
    if (!has_bias) return;
    for (const Matrix& matrix : matrices) {
        base.add({.name = full_name(matrix) + ".bias",
                  .shape = {matrix.outputs},
                  .init = Init::kZeros,
                  .partition = partition == Partition::kRows ? partition : Partition::kReplicated,
                  .is_norm = true});
    }
}

FusedLinear::FusedLinear(const FsdpUnit& base, std::size_t index)
    : first_(index), count_(1), inputs_(base.parameters[index].shape[1]), outputs_(base.parameters[index].shape[0]) {}

std::vector<std::string> FusedLinear::module_names(const FsdpUnit& base) const {
    std::vector<std::string> names;
    for (std::size_t index = first_; index < first_ + count_; ++index) {
        names.push_back(module_name(base.parameters[index]));
    }
    return names;
}

namespace {

// An adapter's A has the columns of its matrix, its B the rows: each is cut where that is.
Partition column_partition(const Parameter& matrix) {
    return matrix.partition == Partition::kColumns ? Partition::kColumns : Partition::kReplicated;
}
Partition row_partition(const Parameter& matrix) {
    return matrix.partition == Partition::kRows ? Partition::kRows : Partition::kReplicated;
}

}  // namespace

// A as peft begins with it: uniform in ±1/√in (kaiming_uniform with a = √5), B zero: no change.
void FusedLinear::adapt(const FsdpUnit& base, const LoraOptions& options, FsdpUnit& frozen, FsdpUnit& trained) {
    FsdpUnit& of_a = options.freeze_a ? frozen : trained;
    unit_of_b_ = options.freeze_a ? 2 : 1;
    dropout_ = options.dropout;
    first_a_ = of_a.parameters.size();
    const auto prefix = [](const Parameter& parameter) { return "base_model.model." + module_name(parameter); };
    std::vector<const Parameter*> adapted;
    std::int64_t column = 0;
    for (std::size_t index = first_; index < first_ + count_; ++index) {
        const Parameter& parameter = base.parameters[index];
        if (const std::string module = module_name(parameter); options.covers(module)) {
            adapted.push_back(&parameter);
            adapters_.push_back({of_a.parameters.size(), 0, column, parameter.shape[0], random_stream(module),
                                 options.rank_of(module), rank_sum_, options.scale_of(module)});
            rank_sum_ += adapters_.back().rank;
            is_even_ = is_even_ && adapters_.back().rank == adapters_.front().rank &&
                       adapters_.back().scale == adapters_.front().scale;
            of_a.add({.name = prefix(parameter) + ".lora_A.weight",
                      .shape = {adapters_.back().rank, inputs_},
                      .init = Init::kUniform,
                      .init_deviation = 1.0F / std::sqrt(static_cast<float>(parameter.shape_in_file()[1])),
                      .partition = column_partition(parameter)});
        }
        column += parameter.shape[0];
    }
    for (std::size_t i = 0; i < adapted.size(); ++i) {
        adapters_[i].b = trained.parameters.size();
        trained.add({.name = prefix(*adapted[i]) + ".lora_B.weight",
                     .shape = {adapters_[i].columns, adapters_[i].rank},
                     .init = Init::kZeros,
                     .partition = row_partition(*adapted[i])});
    }
}

Tensor FusedLinear::allocate_lora_hidden(tensor::Arena& arena, tensor::DType format, std::int64_t tokens,
                                         tensor::Category category) const {
    if (adapters_.empty()) return {};
    return arena.allocate(category, format, {tokens, rank_sum_});
}

Tensor FusedLinear::hidden_part(const Tensor& lora_hidden, std::size_t adapter) const {
    const Adapter& one = adapters_[adapter];
    if (is_even_) return lora_hidden.column_range(one.first, one.rank);
    const std::int64_t tokens = lora_hidden.rows();
    return Tensor(lora_hidden.at(tokens * one.first), lora_hidden.dtype(), {tokens, one.rank});
}

void FusedLinear::scale_hidden(const Context& context, const Tensor& lora_hidden) const {
    if (is_even_) return context.backend.scale(lora_hidden, adapters_.front().scale);
    for (std::size_t i = 0; i < adapters_.size(); ++i)
        context.backend.scale(hidden_part(lora_hidden, i), adapters_[i].scale);
}

Tensor FusedLinear::allocate_dropped(tensor::Arena& arena, tensor::DType format, std::int64_t tokens) const {
    return arena.allocate(tensor::Category::kWorkspace, format, {tokens, inputs_});
}

Tensor FusedLinear::allocate_dequantized(tensor::Arena& arena, tensor::DType format) const {
    return arena.allocate(tensor::Category::kWorkspace, format, {outputs_, inputs_});
}

std::int64_t FusedLinear::workspace_bytes(const kernels::Backend& backend, tensor::DType format,
                                          std::int64_t tokens) const {
    tensor::Arena dropped = tensor::Arena::measuring(), dequantized = tensor::Arena::measuring();
    if (dropout_ > 0 && !adapters_.empty()) allocate_dropped(dropped, format, tokens);
    if (is_quantized_ && !backend.multiplies_quantized()) allocate_dequantized(dequantized, format);
    return std::max(dropped.peak_bytes(), dequantized.peak_bytes());
}

void FusedLinear::drop(const Context& context, const Adapter& adapter, const Tensor& x, const Tensor& out) const {
    const std::int64_t first_token = context.batch.first_sequence * context.batch.shape.length + context.first_token;
    const std::int64_t first_element = first_token * inputs_;
    context.backend.dropout({dropout_, *context.dropout_seed, adapter.stream, first_element}, x, out);
}

template <class Handle>
void FusedLinear::for_dropped(const Context& context, const Tensor& x, Handle&& handle) const {
    const tensor::Arena::Scope scope(context.workspace);
    const Tensor dropped = allocate_dropped(context.workspace, x.dtype(), x.rows());
    for (std::size_t i = 0; i < adapters_.size(); ++i) {
        drop(context, adapters_[i], x, dropped);
        handle(i, dropped);
    }
}

template <class Handle>
void FusedLinear::for_matrices(const Context& context, const UnitView& base, tensor::DType format,
                               Handle&& handle) const {
    kernels::Backend& backend = context.backend;
    if (!base.is_quantized()) return handle(base.stacked_weight(first_, count_), 0);
    const tensor::Arena::Scope scope(context.workspace);
    const bool as_they_are = backend.multiplies_quantized();
    const Tensor all = as_they_are ? Tensor() : allocate_dequantized(context.workspace, format);
    std::int64_t row = 0;
    for (std::size_t index = first_; index < first_ + count_; ++index) {
        const Tensor weight = base.weight(index);
        if (as_they_are) {
            handle(weight, row);
        } else {
            backend.dequantize(weight, all.row_range(row, weight.rows()));
        }
        row += weight.rows();
    }
    if (!as_they_are) handle(all, 0);
}

void FusedLinear::multiply(const Context& context, const UnitView& base, const Tensor& x, const Tensor& y,
                           bool accumulate) const {
    for_matrices(context, base, x.dtype(), [&](const Tensor& matrix, std::int64_t column) {
        context.backend.matmul(x, false, matrix, true, y.column_range(column, matrix.rows()), accumulate);
    });
}

void FusedLinear::multiply_back(const Context& context, const UnitView& base, const Tensor& y_gradient,
                                const Tensor& x_gradient, bool accumulate) const {
    for_matrices(context, base, y_gradient.dtype(), [&](const Tensor& matrix, std::int64_t column) {
        context.backend.matmul(y_gradient.column_range(column, matrix.rows()), false, matrix, false, x_gradient,
                               accumulate || column > 0);
    });
}

void FusedLinear::compute_lora_hidden(const Context& context, std::span<const UnitView> units, const Tensor& x,
                                      const Tensor& lora_hidden) const {
    if (adapters_.empty()) return;
    kernels::Backend& backend = context.backend;
    if (drops(context)) {
        for_dropped(context, x, [&](std::size_t i, const Tensor& dropped) {
            backend.matmul(dropped, false, units[1].weight(adapters_[i].a), true, hidden_part(lora_hidden, i), false);
        });
    } else if (is_even_) {
        backend.matmul(x, false, units[1].stacked_weight(first_a_, adapters_.size()), true, lora_hidden, false);
    } else {
        for (std::size_t i = 0; i < adapters_.size(); ++i)
            backend.matmul(x, false, units[1].weight(adapters_[i].a), true, hidden_part(lora_hidden, i), false);
    }
    scale_hidden(context, lora_hidden);
}

void FusedLinear::forward(const Context& context, std::span<const UnitView> units, const Tensor& x, const Tensor& y,
                          const Tensor& lora_hidden) const {
    const auto multiply_adapters = [&](bool accumulate) {
        for (std::size_t i = 0; i < adapters_.size(); ++i)
            context.backend.matmul(hidden_part(lora_hidden, i), false, units[unit_of_b_].weight(adapters_[i].b), true,
                                   y_columns(y, i), accumulate);
    };
    compute_lora_hidden(context, units, x, lora_hidden);
    if (adapts_all()) multiply_adapters(false);
    multiply(context, units[0], x, y, adapts_all());
    context.make_progress();
    if (!adapts_all()) multiply_adapters(true);
}

void FusedLinear::forward_and_add(const Context& context, std::span<const UnitView> units, const Tensor& x,
                                  const Tensor& residual, const Tensor& y, const Tensor& lora_hidden) const {
    if (!adapters_.empty() || units[0].is_quantized()) {
        forward(context, units, x, y, lora_hidden);
        return add_bias_and_residual(context.backend, bias(units), residual, y);
    }
    context.backend.matmul_with(x, false, units[0].stacked_weight(first_, count_), true, y, {bias(units), residual});
    context.make_progress();
}

void FusedLinear::backward(const Context& context, std::span<const UnitView> units, const Tensor& y_gradient,
                           const Tensor& x, const Tensor& lora_hidden, const Tensor& lora_hidden_gradient,
                           const Tensor& x_gradient) const {
    compute_lora_hidden_gradient(context, units, y_gradient, lora_hidden_gradient);
    compute_weight_gradient(context, units, y_gradient, x, lora_hidden, lora_hidden_gradient);
    if (!x_gradient.empty()) compute_input_gradient(context, units, y_gradient, lora_hidden_gradient, x_gradient);
}

void FusedLinear::compute_lora_hidden_gradient(const Context& context, std::span<const UnitView> units,
                                               const Tensor& y_gradient, const Tensor& lora_hidden_gradient) const {
    if (adapters_.empty()) return;
    for (std::size_t i = 0; i < adapters_.size(); ++i)
        context.backend.matmul(y_columns(y_gradient, i), false, units[unit_of_b_].weight(adapters_[i].b), false,
                               hidden_part(lora_hidden_gradient, i), false);
    scale_hidden(context, lora_hidden_gradient);
}

void FusedLinear::compute_input_gradient(const Context& context, std::span<const UnitView> units,
                                         const Tensor& y_gradient, const Tensor& lora_hidden_gradient,
                                         const Tensor& x_gradient) const {
    const bool has_adapters = !adapters_.empty();
    if (has_adapters) start_input_gradient(context, units, lora_hidden_gradient, x_gradient);
    multiply_back(context, units[0], y_gradient, x_gradient, has_adapters);
    context.make_progress();
}

void FusedLinear::start_input_gradient(const Context& context, std::span<const UnitView> units,
                                       const Tensor& lora_hidden_gradient, const Tensor& x_gradient) const {
    kernels::Backend& backend = context.backend;
    if (!drops(context) && is_even_) {
        const Tensor a = units[1].stacked_weight(first_a_, adapters_.size());
        return backend.matmul(lora_hidden_gradient, false, a, false, x_gradient, false);
    }
    if (!drops(context)) {
        for (std::size_t i = 0; i < adapters_.size(); ++i)
            backend.matmul(hidden_part(lora_hidden_gradient, i), false, units[1].weight(adapters_[i].a), false,
                           x_gradient, i > 0);
        return;
    }
    const tensor::Arena::Scope scope(context.workspace);
    const Tensor scratch = allocate_dropped(context.workspace, lora_hidden_gradient.dtype(), x_gradient.rows());
    for (std::size_t i = 0; i < adapters_.size(); ++i) {
        const Tensor& through = i == 0 ? x_gradient : scratch;
        backend.matmul(hidden_part(lora_hidden_gradient, i), false, units[1].weight(adapters_[i].a), false, through,
                       false);
        drop(context, adapters_[i], through, through);
        if (i > 0) backend.add(x_gradient, scratch, x_gradient);
    }
}

void FusedLinear::compute_a_gradient(const Context& context, std::span<const UnitView> units, const Tensor& x,
                                     const Tensor& lora_hidden_gradient) const {
    kernels::Backend& backend = context.backend;
    const bool accumulate = units[1].accumulate();
    if (drops(context)) {
        for_dropped(context, x, [&](std::size_t i, const Tensor& dropped) {
            backend.matmul(hidden_part(lora_hidden_gradient, i), true, dropped, false,
                           units[1].gradient(adapters_[i].a), accumulate);
        });
    } else if (is_even_) {
        backend.matmul(lora_hidden_gradient, true, x, false, units[1].stacked_gradient(first_a_, adapters_.size()),
                       accumulate);
    } else {
        for (std::size_t i = 0; i < adapters_.size(); ++i)
            backend.matmul(hidden_part(lora_hidden_gradient, i), true, x, false, units[1].gradient(adapters_[i].a),
                           accumulate);
    }
}

void FusedLinear::compute_weight_gradient(const Context& context, std::span<const UnitView> units,
                                          const Tensor& y_gradient, const Tensor& x, const Tensor& lora_hidden,
                                          const Tensor& lora_hidden_gradient) const {
    kernels::Backend& backend = context.backend;
    if (units[0].trains()) {
        backend.matmul(y_gradient, true, x, false, units[0].stacked_gradient(first_, count_), units[0].accumulate());
        if (has_bias_) {
            const Tensor gradient = units[0].stacked_gradient(first_ + count_, count_);
            backend.sum_rows(y_gradient, gradient, units[0].accumulate());
        }
        context.make_progress();
    }
    if (adapters_.empty()) return;
    const bool accumulate = units[unit_of_b_].accumulate();
    if (units[1].trains()) compute_a_gradient(context, units, x, lora_hidden_gradient);
    for (std::size_t i = 0; i < adapters_.size(); ++i)
        backend.matmul(y_columns(y_gradient, i), true, hidden_part(lora_hidden, i), false,
                       units[unit_of_b_].gradient(adapters_[i].b), accumulate);
}

}  // namespace atl::model
