#include "trainer/parallel/control_variate.h"

#include <algorithm>
#include <cstddef>

namespace atl::parallel {
namespace {

using tensor::Category;
using tensor::DType;

// 1 MB of corrected gradients: they stay in a core's cache between the operations on them.
constexpr std::int64_t kCorrectedElements = std::int64_t{1} << 18;
// sgd() with it adds gradients, times the scalars' factor, to its weights.
constexpr kernels::SgdStep kAddGradients{.learning_rate = -1, .momentum = 0, .weight_decay = 0};

kernels::OptimizerRange sum_range(const Tensor& sum, const Tensor& gradients) {
    kernels::OptimizerRange range;
    range.weights = sum;
    range.gradients = gradients;
    return range;
}

}  // namespace

ControlVariate ControlVariate::lay_out(Arena& arena, ParameterStore& store) {
    const DType format = store.model().formats.accumulated;
    check(format == DType::kF32, "a control variate is of gradients in fp32");
    store.lay_out_gradient_sums(arena);
    ControlVariate control;
    std::int64_t largest = 0;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        const bool trains = store.trains(unit);
        const std::int64_t shard = store.shard_spec(unit).shard;
        control.corrections_.push_back(trains ? arena.allocate(Category::kControlVariate, format, {shard}) : Tensor());
        if (trains) largest = std::max(largest, shard);
    }
    control.corrected_ = arena.allocate(Category::kWorkspace, format, {std::min(kCorrectedElements, largest)});
    control.scalars_ = arena.allocate(Category::kWorkspace, DType::kF64, {kernels::kStepScalars});
    control.one_ = arena.allocate(Category::kWorkspace, DType::kF64, {1});
    return control;
}

void ControlVariate::begin(kernels::Backend& backend, const ParameterStore& store) {
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit)
        if (store.trains(unit)) backend.zero(store.gradient_sum(unit));
    for (const Tensor& correction : corrections_)
        if (!correction.empty()) backend.zero(correction);
    constexpr double kOne = 1;
    backend.copy_from_host(&kOne, one_);
    corrects_ = false;
}

void ControlVariate::set_correction(kernels::Backend& backend, const ParameterStore& store, std::size_t unit,
                                    std::int64_t at, std::span<const float> values) {
    corrects_ = true;  // also where this rank keeps none of them
    const ShardSpec& spec = store.shard_spec(unit);
    const std::int64_t from = std::max(at, spec.begin);
    const std::int64_t to = std::min(at + std::ssize(values), spec.begin + spec.shard);
    if (from >= to) return;
    backend.copy_from_host(values.data() + (from - at), flat_range(corrections_[unit], from - spec.begin, to - from));
}

Tensor ControlVariate::apply(kernels::Backend& backend, const ParameterStore& store, const Tensor& scalars) {
    std::vector<kernels::OptimizerRange> ranges;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit)
        if (store.trains(unit)) ranges.push_back(sum_range(store.gradient_sum(unit), store.gradient_shard(unit)));
    backend.sgd(kAddGradients, scalars, ranges);
    if (!corrects_) return scalars;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit)
        if (store.trains(unit)) correct(backend, corrections_[unit], store.gradient_shard(unit), scalars);
    backend.copy(scalars, scalars_);
    const auto factor = static_cast<std::int64_t>(offsetof(kernels::StepScalars, factor) / sizeof(double));
    backend.copy(one_, flat_range(scalars_, factor, 1));
    return scalars_;
}

// Where the step is skipped nobody reads what it makes of the gradients.
void ControlVariate::correct(kernels::Backend& backend, const Tensor& correction, const Tensor& gradients,
                             const Tensor& scalars) const {
    for (std::int64_t begin = 0; begin < correction.element_count(); begin += kCorrectedElements) {
        const std::int64_t count = std::min(kCorrectedElements, correction.element_count() - begin);
        const Tensor corrected = flat_range(corrected_, 0, count), range = flat_range(gradients, begin, count);
        backend.copy(flat_range(correction, begin, count), corrected);
        const kernels::OptimizerRange sum = sum_range(corrected, range);
        backend.sgd(kAddGradients, scalars, sum);
        backend.copy(corrected, range);
    }
}

}  // namespace atl::parallel
