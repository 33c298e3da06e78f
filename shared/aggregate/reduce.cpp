#include "shared/aggregate/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shared/aggregate/kernels.h"
#include "shared/numeric/conversions.h"

namespace atl::aggregate {
namespace {

using safetensors::DType;

std::size_t element_bytes(DType dtype) {
    return static_cast<std::size_t>(safetensors::size_bytes(dtype));
}

// The first element of `bytes` that is NaN or infinite; -1 if none is.
std::int64_t find_non_finite(DType dtype, std::span<const std::byte> bytes) {
    const std::size_t width = element_bytes(dtype);
    for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
        double value = 0;
        float single = 0;
        if (dtype == DType::kF64) std::memcpy(&value, &bytes[at], sizeof value);
        if (dtype == DType::kF32) std::memcpy(&single, &bytes[at], sizeof single);
        if (dtype == DType::kF16) numeric::conversions().widen_f16(&single, &bytes[at], 1);
        if (dtype == DType::kBF16) numeric::conversions().widen_bf16(&single, &bytes[at], 1);
        if (!std::isfinite(value) || !std::isfinite(single)) return static_cast<std::int64_t>(at / width);
    }
    return -1;
}

constexpr std::size_t kTile = 2048;  // elements widened at a time, 8 KiB: stays in the first-level cache

// sum = (first ? 0 : sum) + weight × stored elements.
void accumulate(DType dtype, std::span<float> sum, const std::byte* stored, float weight, bool first,
                std::span<float> wide) {
    const Kernels& kernels = best_kernels();
    const auto& conversions = numeric::conversions();
    const std::size_t width = element_bytes(dtype);
    for (std::size_t at = 0; at < sum.size(); at += kTile) {
        const std::size_t count = std::min(kTile, sum.size() - at);
        const std::byte* const from = stored + at * width;
        if (dtype == DType::kF16) conversions.widen_f16(wide.data(), from, count);
        if (dtype == DType::kBF16) conversions.widen_bf16(wide.data(), from, count);
        if (dtype == DType::kF32) std::memcpy(wide.data(), from, count * sizeof(float));
        (first ? kernels.scale : kernels.add)(&sum[at], wide.data(), weight, count);
    }
}

// False if the sum holds NaN or infinity, or rounds to it.
bool round_into(DType dtype, std::byte* out, std::span<const float> sum) {
    const auto& conversions = numeric::conversions();
    if (!conversions.all_finite(sum.data(), sum.size())) return false;
    if (dtype == DType::kF16) conversions.narrow_f16(out, sum.data(), sum.size());
    if (dtype == DType::kBF16) conversions.narrow_finite_bf16(out, sum.data(), sum.size());
    if (dtype == DType::kF32) std::memcpy(out, sum.data(), sum.size_bytes());
    return true;
}

// Some elements of one tensor of the output.
struct Elements {
    const Plan& plan;
    const Tensor& tensor;
    std::uint64_t first;
    std::size_t count;
};

// The same elements in one model, as stored there.
Result<std::span<const std::byte>> read_elements(const Elements& which, const Input& input, const Place& place,
                                                 Scratch& scratch) {
    const std::size_t width = element_bytes(place.dtype);
    const std::span<std::byte> raw = std::span(scratch.raw).first(which.count * width);
    ATOLL_RETURN_IF_ERROR(input.files[place.file].bytes->read(place.offset + which.first * width, raw));
    return std::span<const std::byte>(raw);
}

// Of one of the inputs.
Result<std::span<const std::byte>> read_input(const Elements& which, std::size_t input, Scratch& scratch) {
    auto raw = read_elements(which, which.plan.inputs[input], which.tensor.inputs[input], scratch);
    if (!raw.ok()) report_fault(which.plan.options, input);
    return raw;
}

Status find_fault(const Elements& which, const Input& input, const Place& place, Scratch& scratch) {
    ATOLL_TRY(const auto raw, read_elements(which, input, place, scratch));
    const std::int64_t at = find_non_finite(place.dtype, raw);
    if (at < 0) return {};
    const std::string& name = which.tensor.info.name;
    return invalid_argument(name, "tensor " + in_quotes(name) + " of " + input.name +
                                      " holds NaN or infinity at element " +
                                      std::to_string(which.first + static_cast<std::uint64_t>(at)));
}

// Says which model spoils these elements.
Error blame(const Elements& which, Scratch& scratch) {
    const Tensor& tensor = which.tensor;
    Status status;
    for (std::size_t i = 0; status.ok() && i < tensor.inputs.size(); ++i) {
        status = find_fault(which, which.plan.inputs[i], tensor.inputs[i], scratch);
        if (!status.ok()) report_fault(which.plan.options, i);
    }
    if (status.ok() && (tensor.kind == TensorKind::kWeights || tensor.kind == TensorKind::kMomentum))
        status = find_fault(which, which.plan.start->base, tensor.base, scratch);
    if (status.ok() && tensor.momentum)
        status = find_fault(which, *which.plan.start->momentum, *tensor.momentum, scratch);
    if (!status.ok()) return status.error();
    return invalid_argument(tensor.info.name, "the " + std::string(tensor.kind == TensorKind::kMean ? "mean" : "step") +
                                                  " of tensor " + in_quotes(tensor.info.name) + " overflows " +
                                                  safetensors::to_string(tensor.info.dtype));
}

Status widen(const Elements& which, const Input& input, const Place& place, std::span<float> into, Scratch& scratch) {
    ATOLL_TRY(const auto raw, read_elements(which, input, place, scratch));
    accumulate(place.dtype, into, raw.data(), 1.0F, /*first=*/true, scratch.wide);
    return {};
}

// The weighted mean, in scratch.sum.
Result<std::span<float>> sum_up(const Elements& which, Scratch& scratch) {
    const std::span<float> sum = std::span(scratch.sum).first(which.count);
    for (std::size_t i = 0; i < which.plan.inputs.size(); ++i) {
        ATOLL_TRY(const auto raw, read_input(which, i, scratch));
        accumulate(which.tensor.inputs[i].dtype, sum, raw.data(), static_cast<float>(which.plan.shares[i]), i == 0,
                   scratch.wide);
    }
    return sum;
}

// Whether what was rounded into its type left the range of it: `seen` takes it as fp32.
bool overflows(DType dtype, std::span<const std::byte> rounded, std::span<float> seen, std::span<float> wide) {
    if (dtype == DType::kF32) return false;  // found before it was rounded
    accumulate(dtype, seen, rounded.data(), 1.0F, /*first=*/true, wide);
    return !numeric::conversions().all_finite(seen.data(), seen.size());
}

Status mean(const Elements& which, std::span<std::byte> into, Scratch& scratch) {
    ATOLL_TRY(const auto sum, sum_up(which, scratch));
    const DType dtype = which.tensor.info.dtype;
    if (!round_into(dtype, into.data(), sum)) return blame(which, scratch);
    const bool wider = std::any_of(which.tensor.inputs.begin(), which.tensor.inputs.end(),
                                   [&](const Place& place) { return place.dtype != dtype; });
    if (wider && overflows(dtype, into, sum, scratch.wide)) return blame(which, scratch);
    return {};
}

Status mean_f64(const Elements& which, std::span<std::byte> into, Scratch& scratch) {
    std::vector<double> sum(which.count, 0.0);
    bool finite = true;
    for (std::size_t i = 0; i < which.plan.inputs.size(); ++i) {
        ATOLL_TRY(const auto raw, read_input(which, i, scratch));
        const double share = which.plan.shares[i];
        for (std::size_t at = 0; at < sum.size(); ++at) {
            double value;
            std::memcpy(&value, &raw[at * sizeof value], sizeof value);
            sum[at] = i == 0 ? share * value : sum[at] + share * value;
            finite = finite && std::isfinite(sum[at]);
        }
    }
    if (!finite) return blame(which, scratch);
    std::memcpy(into.data(), sum.data(), into.size());
    return {};
}

// The weights that the server optimizer's step gives, or its new momentum.
Status step(const Elements& which, std::span<std::byte> into, Scratch& scratch) {
    const RoundBase& start = *which.plan.start;
    ATOLL_TRY(const auto sum, sum_up(which, scratch));
    const std::span<float> base = std::span(scratch.base).first(which.count);
    const std::span<float> momentum = std::span(scratch.momentum).first(which.count);
    ATOLL_RETURN_IF_ERROR(widen(which, start.base, which.tensor.base, base, scratch));
    std::fill(momentum.begin(), momentum.end(), 0.0F);
    if (which.tensor.momentum)
        ATOLL_RETURN_IF_ERROR(widen(which, *start.momentum, *which.tensor.momentum, momentum, scratch));
    const ServerOptimizer& optimizer = *which.plan.strategy.server_optimizer;
    best_kernels().nesterov(sum.data(), momentum.data(), base.data(), static_cast<float>(optimizer.learning_rate),
                            static_cast<float>(optimizer.beta1), which.count);
    const bool weights = which.tensor.kind == TensorKind::kWeights;
    const DType dtype = which.tensor.info.dtype;
    if (!round_into(dtype, into.data(), weights ? sum : momentum)) return blame(which, scratch);
    // Unlike a mean, a step can leave the range of its type.
    if (overflows(dtype, into, base, scratch.wide)) return blame(which, scratch);
    return {};
}

// Of two inputs whose elements differ: the second, unless it is the first that has left the base's.
Status report_odd_one(const Elements& which, std::size_t first, std::size_t other, Scratch& scratch) {
    if (!which.plan.start) {
        report_fault(which.plan.options, other);
        return {};
    }
    ATOLL_TRY(const auto read, read_elements(which, which.plan.start->base, which.tensor.base, scratch));
    const std::vector<std::byte> base(read.begin(), read.end());
    ATOLL_TRY(const auto raw, read_input(which, first, scratch));
    report_fault(which.plan.options, std::memcmp(raw.data(), base.data(), base.size()) != 0 ? first : other);
    return {};
}

Status copy(const Elements& which, std::span<std::byte> into, Scratch& scratch) {
    const std::vector<Input>& inputs = which.plan.inputs;
    const std::string& name = which.tensor.info.name;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        ATOLL_TRY(const auto raw, read_input(which, i, scratch));
        if (i == 0) std::memcpy(into.data(), raw.data(), raw.size());
        if (std::memcmp(raw.data(), into.data(), raw.size()) == 0) continue;
        ATOLL_RETURN_IF_ERROR(report_odd_one(which, 0, i, scratch));
        return invalid_argument(name, "tensor " + in_quotes(name) + " of " +
                                          safetensors::to_string(which.tensor.info.dtype) + " differs between " +
                                          inputs[0].name + " and " + inputs[i].name + ": it cannot be averaged");
    }
    return {};
}

}  // namespace

// A model may have wider elements than the output.
Scratch::Scratch(const Plan& plan)
    : raw(plan.options.block_bytes * (plan.start ? 2 : 1)),
      whole(sizeof(double)),
      sum(plan.options.block_bytes / 2),
      wide(kTile) {
    if (!plan.strategy.server_optimizer) return;
    base.resize(sum.size());
    momentum.resize(sum.size());
}

Status reduce_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                       Scratch& scratch) {
    const Elements which{plan, tensor, first, into.size() / element_bytes(tensor.info.dtype)};
    if (tensor.kind == TensorKind::kCopy) return copy(which, into, scratch);
    if (tensor.kind != TensorKind::kMean) return step(which, into, scratch);
    return tensor.info.dtype == DType::kF64 ? mean_f64(which, into, scratch) : mean(which, into, scratch);
}

}  // namespace atl::aggregate
