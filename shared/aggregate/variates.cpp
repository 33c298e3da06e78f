#include "shared/aggregate/variates.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "shared/adapter/adapter.h"
#include "shared/aggregate/defence.h"
#include "shared/aggregate/kernels.h"
#include "shared/delta/control_variate.h"

namespace atl::aggregate {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;

constexpr std::size_t kVariateBytes = 2;  // an element of the mean, in BF16

// Where the tensors of one model's control variate lie.
using VariatePlaces = std::map<std::string, Place, std::less<>>;

std::string variate_name(const Input& input) {
    return input.name + "/" + delta::kControlVariateFile;
}

// Of all tensors of the model that the strategy makes.
template <class Visit>
Status for_each_combined(const Plan& plan, const Visit& visit) {
    for (std::size_t file = 0; file < plan.start->base.files.size(); ++file)
        for (const Tensor& tensor : plan.planned[file].tensors)
            if (tensor.kind == TensorKind::kCombine) ATOLL_RETURN_IF_ERROR(visit(tensor));
    return {};
}

// A model that has control variates.
Status check_model(const Plan& plan) {
    for (const InputFile& file : plan.start->base.files) {
        if (file.path == adapter::kWeightsFile)
            return invalid_argument("strategy.control_variate", "adapters have no control variates");
        if (file.path.starts_with(delta::kControlVariateFolder))
            return invalid_argument(file.path, file.path + ": is where the control variates' mean is kept");
    }
    return for_each_combined(plan, [&](const Tensor& tensor) -> Status {
        if (tensor.base.dtype != DType::kF64) return {};
        return invalid_argument(tensor.info.name, "tensor " + in_quotes(tensor.info.name) +
                                                      " is F64: control variates are of narrower types");
    });
}

// An update's: int8, of this base, with just its floating tensors.
Result<VariatePlaces> open_variate(const Input& input, const Plan& plan) {
    const std::string name = variate_name(input);
    const auto wrong = [&](const std::string& field, const std::string& what) {
        return invalid_argument(field, name + ": " + what);
    };
    if (!input.control_variate)
        return wrong(delta::kControlVariateFile, "is missing, and the strategy has control variates");
    ATOLL_TRY(const OpenedFile opened, read_header(input, {delta::kControlVariateFile, input.control_variate}));
    const auto said = delta::describe(opened.header);
    if (!said.ok()) return wrong(said.error().field, said.error().message);
    if (said->format != delta::Format::kInt8) return wrong(delta::kFormatKey, "must be int8");
    if (!plan.start->digest.empty() && said->base != plan.start->digest)
        return wrong(delta::kBaseKey, "is of a training of another model (" + in_quotes(said->base) + ") than " +
                                          plan.start->base.name + " (" + in_quotes(plan.start->digest) + ")");
    VariatePlaces places;
    ATOLL_RETURN_IF_ERROR(for_each_combined(plan, [&](const Tensor& tensor) -> Status {
        const std::string& own = tensor.info.name;
        const TensorInfo* packed = opened.header.find(own);
        if (packed == nullptr) return wrong(own, "lacks tensor " + in_quotes(own) + " of " + plan.start->base.name);
        const Status fits =
            delta::check_tensor(said->format, {own, tensor.base.dtype, tensor.info.shape, 0, 0}, *packed);
        if (!fits.ok()) return wrong(own, fits.error().message);
        places[own] = {0, opened.header.data_begin + packed->begin, DType::kU8, said->format};
        return {};
    }));
    for (const TensorInfo& packed : opened.header.tensors)
        if (packed.begin != packed.end && !places.contains(packed.name))
            return wrong(packed.name, "has tensor " + in_quotes(packed.name) + ", which is none that " +
                                          plan.start->base.name + " learns");
    return places;
}

// The base's own mean, as a round before left it.
Result<VariatePlaces> open_kept(const Plan& plan) {
    const Input& kept = *plan.start->control_variate;
    VariatePlaces places;
    for (std::size_t i = 0; i < kept.files.size(); ++i) {
        ATOLL_TRY(const OpenedFile opened, read_header(kept, kept.files[i]));
        for (const TensorInfo& info : opened.header.tensors)
            if (info.dtype == DType::kBF16) places[info.name] = {i, opened.header.data_begin + info.begin, info.dtype};
    }
    ATOLL_RETURN_IF_ERROR(for_each_combined(plan, [&](const Tensor& tensor) -> Status {
        if (places.contains(tensor.info.name)) return {};
        return invalid_argument(tensor.info.name, kept.name + ": the control variates of the base lack tensor " +
                                                      in_quotes(tensor.info.name) + " as BF16");
    }));
    return places;
}

// The tensors of one of the model's files, in their order.
PlannedFile plan_variate_file(const PlannedFile& model, const std::vector<VariatePlaces>& variates,
                              const std::optional<VariatePlaces>& kept) {
    PlannedFile planned;
    std::vector<TensorInfo> infos;
    for (const Tensor& tensor : model.tensors) {
        if (tensor.kind != TensorKind::kCombine) continue;
        infos.push_back({tensor.info.name, DType::kBF16, tensor.info.shape, 0, 0});
        Tensor& made = planned.tensors.emplace_back();
        made.kind = TensorKind::kVariate;
        made.widest = sizeof(float);
        for (const VariatePlaces& places : variates) made.inputs.push_back(places.at(tensor.info.name));
        made.state.emplace_back();
        if (kept) made.state.back() = kept->at(tensor.info.name);
    }
    planned.head = safetensors::make_header(infos);
    for (std::size_t i = 0; i < infos.size(); ++i) {
        Tensor& tensor = planned.tensors[i];
        tensor.info = infos[i];
        tensor.begin = planned.head.size() + infos[i].begin;
        tensor.end = planned.head.size() + infos[i].end;
    }
    return planned;
}

// Elements of a tensor of the mean.
struct VariateElements {
    const Plan& plan;
    const Tensor& tensor;
    std::uint64_t first;
    std::size_t count;
};

// The same elements of one update's control variate, whose blocks are read whole.
Status read_variate(const VariateElements& which, std::size_t input, std::vector<float>& values, Scratch& scratch) {
    const Plan& plan = which.plan;
    const Place& place = which.tensor.inputs[input];
    const std::size_t block_bytes = delta::block_bytes(*place.change);
    const std::uint64_t begin = which.first / delta::kBlockElements;
    const std::uint64_t end = delta::block_count(which.first + which.count);
    scratch.blocks.resize(static_cast<std::size_t>(end - begin) * block_bytes);
    const Status read = plan.inputs[input].control_variate->read(place.offset + begin * block_bytes, scratch.blocks);
    if (!read.ok()) report_fault(plan.options, input);
    ATOLL_RETURN_IF_ERROR(read);
    values.assign(which.count, 0.0F);
    delta::add_changes(*place.change, scratch.blocks, which.first, values);
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return {};
    report_fault(plan.options, input);
    return non_finite(which.tensor.info.name, variate_name(plan.inputs[input]),
                      which.first + static_cast<std::uint64_t>(bad - values.begin()));
}

// And of the base's own mean, which is there.
Status read_kept(const VariateElements& which, std::vector<float>& values, Scratch& scratch) {
    const Input& kept = *which.plan.start->control_variate;
    const Place& place = *which.tensor.state.front();
    scratch.blocks.resize(which.count * kVariateBytes);
    ATOLL_RETURN_IF_ERROR(
        kept.files[place.file].bytes->read(place.offset + which.first * kVariateBytes, scratch.blocks));
    values.resize(which.count);
    widen(DType::kBF16, values.data(), scratch.blocks.data(), which.count);
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return {};
    return non_finite(which.tensor.info.name, kept.name,
                      which.first + static_cast<std::uint64_t>(bad - values.begin()));
}

void add_squares(std::span<const float> values, ExactSum& sum) {
    static const std::vector<float> kZeros(kTile);
    static const std::vector<double> kNoSum(kTile);
    for (std::size_t at = 0; at < values.size(); at += kTile) {
        double sums[kSumsPerInput];
        best_kernels().measure(&values[at], kZeros.data(), kNoSum.data(), std::min(kTile, values.size() - at), sums);
        sum.add(sums[0]);
    }
}

// The mean of numbers that are finite is not: who holds by far the largest.
Status blame_variate(const VariateElements& which, Scratch& scratch) {
    std::vector<double> largest;
    std::vector<float> values;
    for (std::size_t i = 0; i < which.plan.inputs.size(); ++i) {
        ATOLL_RETURN_IF_ERROR(read_variate(which, i, values, scratch));
        float most = 0;
        for (const float value : values) most = std::max(most, std::abs(value));
        largest.push_back(most);
    }
    const std::string& name = which.tensor.info.name;
    std::string why = "the mean of the control variates overflows BF16 in tensor " + in_quotes(name);
    if (const auto outlier = find_outlier(largest)) {
        report_fault(which.plan.options, *outlier);
        why += "; " + which.plan.inputs[*outlier].name + " holds by far the largest numbers there";
    }
    return invalid_argument(name, why);
}

}  // namespace

Status plan_variates(Plan& plan) {
    if (!plan.spec.control_variate) return {};
    ATOLL_RETURN_IF_ERROR(check_model(plan));
    std::vector<VariatePlaces> variates;
    for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
        auto places = open_variate(plan.inputs[i], plan);
        if (!places.ok()) {
            report_fault(plan.options, i);
            return places.error();
        }
        variates.push_back(std::move(places).value());
    }
    std::optional<VariatePlaces> kept;
    if (plan.start->control_variate) {
        ATOLL_TRY(kept, open_kept(plan));
    }
    plan.kept_variate = 1 - plan.present;
    plan.has_variates = plan.inputs.size() > 1;
    if (!plan.has_variates) plan.variate_parts = {0};
    for (std::size_t i = 0; i < plan.start->base.files.size(); ++i) {
        PlannedFile planned = plan_variate_file(plan.planned[i], variates, kept);
        const std::uint64_t size = planned.tensors.empty() ? planned.head.size() : planned.tensors.back().end;
        plan.files.push_back({delta::kControlVariateFolder + plan.start->base.files[i].path, size});
        plan.planned.push_back(std::move(planned));
    }
    return {};
}

std::size_t variate_sums(const Plan& plan) {
    return plan.spec.control_variate ? plan.inputs.size() + 1 : 0;
}

Status measure_variate(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::uint64_t end,
                       std::span<ExactSum> sums, Scratch& scratch) {
    const std::size_t block = std::max<std::size_t>(plan.options.block_bytes / sizeof(float) / kTile, 1);
    const std::uint64_t elements = (tensor.end - tensor.begin) / kVariateBytes;
    std::vector<float> values;
    for (; first < end; first += block) {
        const std::uint64_t begin = first * kTile;
        const std::uint64_t until = std::min(std::min(first + block, end) * kTile, elements);
        const VariateElements which{plan, tensor, begin, static_cast<std::size_t>(until - begin)};
        for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
            ATOLL_RETURN_IF_ERROR(read_variate(which, i, values, scratch));
            add_squares(values, sums[i]);
        }
        if (!tensor.state.front()) continue;
        ATOLL_RETURN_IF_ERROR(read_kept(which, values, scratch));
        add_squares(values, sums.back());
    }
    return {};
}

void prepare_variates(Plan& plan, std::span<const double> sums, std::vector<UpdateFigures>& figures) {
    if (sums.empty()) return;
    std::vector<double> norms;
    for (const double squares : sums) norms.push_back(std::sqrt(squares));
    std::vector<double> counted;
    for (std::size_t i = 0; i < figures.size(); ++i) counted.push_back(figures[i].counted * plan.shares[i]);
    VariateParts parts = parts_of_variates(std::span(norms).first(norms.size() - 1), counted, norms.back(), plan.spec);
    plan.kept_variate = (1 - plan.present) * parts.base;
    plan.has_variates = !parts.are_too_few;
    plan.variate_parts = std::move(parts.updates);
    for (std::size_t i = 0; i < figures.size(); ++i) figures[i].control_variate = {norms[i], plan.variate_parts[i]};
}

Status make_variate(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                    Scratch& scratch) {
    const VariateElements which{plan, tensor, first, into.size() / kVariateBytes};
    const Kernels& kernels = best_kernels();
    std::vector<float> sum(which.count, 0.0F), values;
    for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
        const double part = plan.variate_parts.empty() ? 1 : plan.variate_parts[i];
        const double factor = plan.shares[i] * plan.present * part;
        if (factor == 0) continue;  // it was looked at as it was measured
        ATOLL_RETURN_IF_ERROR(read_variate(which, i, values, scratch));
        kernels.add(sum.data(), values.data(), static_cast<float>(factor), which.count);
    }
    if (plan.kept_variate > 0 && tensor.state.front()) {
        ATOLL_RETURN_IF_ERROR(read_kept(which, values, scratch));
        kernels.add(sum.data(), values.data(), static_cast<float>(plan.kept_variate), which.count);
    }
    values.resize(which.count);
    return round_into(DType::kBF16, into.data(), sum, values) ? Status() : blame_variate(which, scratch);
}

}  // namespace atl::aggregate
