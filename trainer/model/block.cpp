#include "trainer/model/block.h"

#include <utility>

namespace atl::model {

std::int64_t Parameter::element_count() const {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    return count;
}

void ParameterGroup::add(Parameter parameter) {
    parameter.offset = element_count;
    element_count += parameter.element_count();
    parameters.push_back(std::move(parameter));
}

GroupView::GroupView(const ParameterGroup& group, const Tensor& weights, const Tensor& gradients, bool accumulate)
    : group_(&group), weights_(weights), gradients_(gradients), accumulate_(accumulate) {
    check(weights.element_count() >= group.element_count, "the weights are not of this group");
    check(gradients.empty() || gradients.element_count() >= group.element_count, "the gradients are not of this group");
}

Tensor GroupView::view(const Tensor& flat, std::size_t first, std::size_t count) const {
    const Parameter& begin = group_->parameters.at(first);
    const std::int64_t columns = begin.shape.back();
    std::int64_t elements = 0;
    for (std::size_t index = first; index < first + count; ++index) {
        const Parameter& parameter = group_->parameters.at(index);
        check(parameter.shape.back() == columns, "only matrices of as many columns can be stacked");
        elements += parameter.element_count();
    }
    return Tensor(flat.at(begin.offset), flat.dtype(), {elements / columns, columns});
}

}  // namespace atl::model
