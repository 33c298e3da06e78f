#include "trainer/model/block.h"

#include <functional>
#include <numeric>
#include <utility>

#include "shared/base/check.h"
#include "trainer/quant/int8.h"
#include "trainer/quant/nf4.h"

namespace atl::model {
using tensor::DType;

std::int64_t Parameter::element_count() const {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    return count;
}

void Parameter::become_part(int part, int parts) {
    if (partition == Partition::kReplicated || parts == 1) return;
    const bool by_rows = partition == Partition::kRows;
    const std::size_t dim = by_rows ? 0 : 1;
    whole_shape = shape;
    whole_shape[dim] *= parts;
    (by_rows ? first_row : first_column) = shape[dim] * part;
}

Slice Parameter::slice() const {
    const auto columns_of = [](const std::vector<std::int64_t>& dims) {
        return std::accumulate(dims.begin() + 1, dims.end(), std::int64_t{1}, std::multiplies<>());
    };
    return {first_row, shape.front(), first_column, columns_of(shape), columns_of(shape_in_file())};
}

void FsdpUnit::add(Parameter parameter) {
    parameter.offset = element_count;
    parameter.extent = parameter.element_count();
    element_count += parameter.extent;
    parameters.push_back(std::move(parameter));
}

void FsdpUnit::quantize(DType format) {
    storage = DType::kU8;
    frozen = true;
    element_count = 0;
    for (Parameter& parameter : parameters) {
        parameter.stored = parameter.shape.size() == 2 ? format : DType::kF32;
        parameter.offset = element_count;
        // Bytes.
        parameter.extent = parameter.stored == DType::kF32 ? tensor::size_bytes(DType::kF32, parameter.element_count())
                           : format == DType::kInt8 ? quant::Int8Layout(parameter.shape[0], parameter.shape[1]).size
                                                    : quant::Nf4Layout(parameter.element_count()).size;
        element_count += parameter.extent;
    }
}

UnitView::UnitView(const FsdpUnit& unit, const Tensor& weights, const Tensor& gradients, bool accumulate)
    : unit_(&unit), weights_(weights), gradients_(gradients), accumulate_(accumulate) {
    check(weights.empty() || weights.element_count() >= unit.element_count, "the weights are not of this unit");
    check(gradients.empty() || gradients.element_count() >= unit.element_count, "the gradients are not of this unit");
}

void UnitView::append_to(std::vector<std::uint64_t>& key) const {
    key.push_back(reinterpret_cast<std::uintptr_t>(weights_.data()));
    key.push_back(reinterpret_cast<std::uintptr_t>(gradients_.data()));
    key.push_back(accumulate_ ? 1 : 0);
}

UnitView UnitView::accumulating() const {
    UnitView view = *this;
    view.accumulate_ = true;
    return view;
}

Tensor UnitView::view(const Tensor& flat, std::size_t first, std::size_t count) const {
    const Parameter& begin = unit_->parameters.at(first);
    const DType dtype = flat.dtype() == DType::kU8 ? begin.stored : flat.dtype();
    check(count == 1 || !tensor::is_quantized(dtype), "quantised matrices cannot be stacked");
    const bool are_vectors = begin.shape.size() == 1;
    std::int64_t elements = 0;
    for (std::size_t index = first; index < first + count; ++index) {
        const Parameter& parameter = unit_->parameters.at(index);
        check(are_vectors || parameter.shape.back() == begin.shape.back(),
              "only matrices of as many columns can be stacked");
        elements += parameter.element_count();
    }
    const std::int64_t columns = are_vectors ? elements : begin.shape.back();
    return Tensor(flat.at(begin.offset), dtype, {elements / columns, columns});
}

Block::Block(std::string name, std::vector<FsdpUnit>& units) : name_(std::move(name)), units_{units.size()} {
    units.push_back({.name = name_, .parameters = {}});
}

void Block::recompute(const Context&, std::span<const UnitView>, const Tensor&, const SavedMemory&) const {
    check(false, name_ + " saves nothing");
}

}  // namespace atl::model
