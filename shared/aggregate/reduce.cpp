#include "shared/aggregate/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "shared/aggregate/kernels.h"
#include "shared/numeric/conversions.h"

namespace atl::aggregate {
namespace {

using safetensors::DType;

constexpr double kOutlier = 10;  // times the lower median of the inputs' largest numbers

std::size_t element_bytes(DType dtype) {
    return static_cast<std::size_t>(safetensors::size_bytes(dtype));
}

}  // namespace

void widen(DType dtype, float* wide, const std::byte* stored, std::size_t count) {
    const auto& conversions = numeric::conversions();
    if (dtype == DType::kF16) conversions.widen_f16(wide, stored, count);
    if (dtype == DType::kBF16) conversions.widen_bf16(wide, stored, count);
    if (dtype == DType::kF32) std::memcpy(wide, stored, count * sizeof(float));
    // Only to be measured: what is beyond fp32 counts as its largest number.
    for (std::size_t i = 0; dtype == DType::kF64 && i < count; ++i) {
        double value;
        std::memcpy(&value, stored + i * sizeof value, sizeof value);
        constexpr double kMost = std::numeric_limits<float>::max();
        wide[i] = static_cast<float>(std::isfinite(value) ? std::clamp(value, -kMost, kMost) : value);
    }
}

bool round_into(DType dtype, std::byte* out, std::span<const float> values, std::span<float> seen) {
    const auto& conversions = numeric::conversions();
    if (!conversions.all_finite(values.data(), values.size())) return false;
    if (dtype == DType::kF16) conversions.narrow_f16(out, values.data(), values.size());
    if (dtype == DType::kBF16) conversions.narrow_finite_bf16(out, values.data(), values.size());
    if (dtype == DType::kF32) std::memcpy(out, values.data(), values.size_bytes());
    if (seen.empty()) return true;
    widen(dtype, seen.data(), out, values.size());
    return conversions.all_finite(seen.data(), values.size());
}

Status read_changed(const Input& input, const Place& place, DType base_dtype, std::span<const std::byte> base,
                    std::uint64_t first, std::span<std::byte> into, Scratch& scratch) {
    const std::size_t count = into.size() / sizeof(float), block_bytes = delta::block_bytes(*place.change);
    const std::uint64_t begin = first / delta::kBlockElements, end = delta::block_count(first + count);
    std::vector<std::byte>& blocks = scratch.blocks;
    blocks.resize(static_cast<std::size_t>(end - begin) * block_bytes);
    ATOLL_RETURN_IF_ERROR(input.files[place.file].bytes->read(place.offset + begin * block_bytes, blocks));
    std::array<float, 4 * delta::kBlockElements> room;
    for (std::size_t at = 0; at < count; at += room.size()) {
        const std::span<float> values = std::span(room).first(std::min(room.size(), count - at));
        widen(base_dtype, values.data(), base.data() + at * element_bytes(base_dtype), values.size());
        const std::uint64_t block = (first + at) / delta::kBlockElements - begin;
        delta::add_changes(*place.change, std::span(blocks).subspan(static_cast<std::size_t>(block) * block_bytes),
                           first + at, values);
        std::memcpy(into.data() + at * sizeof(float), values.data(), values.size_bytes());
    }
    return {};
}

Error non_finite(const std::string& tensor, const std::string& model, std::uint64_t element) {
    return invalid_argument(tensor, "tensor " + in_quotes(tensor) + " of " + model +
                                        " holds NaN or infinity at element " + std::to_string(element));
}

std::optional<std::size_t> find_outlier(const std::vector<double>& largest) {
    std::vector<double> sorted = largest;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.size() < 2 || sorted.back() <= kOutlier * sorted[(sorted.size() - 1) / 2]) return std::nullopt;
    return std::max_element(largest.begin(), largest.end()) - largest.begin();
}

namespace {

struct Range {
    std::int64_t non_finite = -1;  // the first element that is NaN or infinite; -1: none is
    double largest = 0;            // magnitude before it
};

Range range_of(DType dtype, std::span<const std::byte> bytes) {
    const std::size_t width = element_bytes(dtype);
    Range range;
    for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
        double value = 0;
        float single = 0;
        if (dtype == DType::kF64) std::memcpy(&value, &bytes[at], sizeof value);
        if (dtype == DType::kF32) std::memcpy(&single, &bytes[at], sizeof single);
        if (dtype == DType::kF16) numeric::conversions().widen_f16(&single, &bytes[at], 1);
        if (dtype == DType::kBF16) numeric::conversions().widen_bf16(&single, &bytes[at], 1);
        const double magnitude = std::abs(dtype == DType::kF64 ? value : single);
        if (!std::isfinite(magnitude)) {
            range.non_finite = static_cast<std::int64_t>(at / width);
            return range;
        }
        range.largest = std::max(range.largest, magnitude);
    }
    return range;
}

// Some elements of one tensor of the output.
struct Elements {
    const Plan& plan;
    const Tensor& tensor;
    std::uint64_t first;
    std::size_t count;
};

// The same elements in one model, as stored there. `source`: whose room they get.
Result<std::span<const std::byte>> read_elements(const Elements& which, const Input& input, const Place& place,
                                                 Scratch& scratch, std::size_t source = 0) {
    const std::size_t width = element_bytes(place.dtype);
    const std::span<std::byte> raw = scratch.raw_of(source).first(which.count * width);
    ATOLL_RETURN_IF_ERROR(input.files[place.file].bytes->read(place.offset + which.first * width, raw));
    return std::span<const std::byte>(raw);
}

// Of the base, in its own room, behind that of the inputs.
Result<std::span<const std::byte>> read_base(const Elements& which, Scratch& scratch) {
    return read_elements(which, which.plan.start->base, which.tensor.base, scratch, which.plan.inputs.size());
}

// Of one of the inputs. Of one that is a change the base must have been read.
Result<std::span<const std::byte>> read_input(const Elements& which, std::size_t input, Scratch& scratch,
                                              std::size_t source = 0) {
    const Plan& plan = which.plan;
    const Place& place = which.tensor.inputs[input];
    if (!place.change) {
        auto raw = read_elements(which, plan.inputs[input], place, scratch, source);
        if (!raw.ok()) report_fault(plan.options, input);
        return raw;
    }
    const std::span<std::byte> raw = scratch.raw_of(source).first(which.count * sizeof(float));
    const Status read = read_changed(plan.inputs[input], place, which.tensor.base.dtype,
                                     scratch.raw_of(plan.inputs.size()), which.first, raw, scratch);
    if (!read.ok()) report_fault(plan.options, input);
    ATOLL_RETURN_IF_ERROR(read);
    return std::span<const std::byte>(raw);
}

// The largest magnitude of the elements in one model, as they were read. kInvalidArgument where one is NaN or infinite.
Result<double> find_largest(const Elements& which, const std::string& model, const Place& place,
                            const Result<std::span<const std::byte>>& raw) {
    ATOLL_RETURN_IF_ERROR(raw);
    const Range range = range_of(place.dtype, *raw);
    if (range.non_finite < 0) return range.largest;
    return non_finite(which.tensor.info.name, model, which.first + static_cast<std::uint64_t>(range.non_finite));
}

// Of a model beside the inputs.
Result<double> find_largest(const Elements& which, const Input& model, const Place& place, Scratch& scratch) {
    return find_largest(which, model.name, place, read_elements(which, model, place, scratch));
}

// Where the strategy's state of that number comes from.
const Input& state_input(const Plan& plan, std::size_t state) {
    return plan.start->state.find(plan.strategy->state()[state])->second;
}

// Says which model spoils these elements.
Error blame(const Elements& which, Scratch& scratch) {
    const Tensor& tensor = which.tensor;
    const Plan& plan = which.plan;
    std::vector<double> largest;
    if (plan.has_changes)  // else a change of a base that is spoilt itself would be blamed
        ATOLL_RETURN_IF_ERROR(find_largest(which, plan.start->base.name, tensor.base, read_base(which, scratch)));
    for (std::size_t i = 0; i < tensor.inputs.size(); ++i) {
        const auto found = find_largest(which, plan.inputs[i].name, tensor.inputs[i], read_input(which, i, scratch));
        if (!found.ok()) {
            report_fault(plan.options, i);
            return found.error();
        }
        largest.push_back(*found);
    }
    Result<double> beside = 0.0;
    if (plan.strategy->needs_base()) beside = find_largest(which, plan.start->base, tensor.base, scratch);
    for (std::size_t i = 0; beside.ok() && i < tensor.state.size(); ++i)
        if (tensor.state[i]) beside = find_largest(which, state_input(plan, i), *tensor.state[i], scratch);
    if (!beside.ok()) return beside.error();
    std::string why = "the " + std::string(tensor.state.empty() ? "mean" : "step") + " of tensor " +
                      in_quotes(tensor.info.name) + " overflows " + safetensors::to_string(tensor.info.dtype);
    if (const auto outlier = find_outlier(largest)) {
        report_fault(plan.options, *outlier);
        why += "; " + plan.inputs[*outlier].name + " holds by far the largest numbers there";
    }
    return invalid_argument(tensor.info.name, why);
}

// What a block is made of beside the inputs.
struct Beside {
    bool base;
    bool state;
};

// Reads the elements of all sources: the inputs, the base, the state.
Status read_sources(const Elements& which, Beside beside, Scratch& scratch) {
    const Plan& plan = which.plan;
    if (beside.base) ATOLL_RETURN_IF_ERROR(read_base(which, scratch));  // first: inputs may be changes of it
    std::size_t source = 0;
    for (; source < plan.inputs.size(); ++source) ATOLL_RETURN_IF_ERROR(read_input(which, source, scratch, source));
    if (beside.base) ++source;
    for (std::size_t i = 0; beside.state && i < which.tensor.state.size(); ++i, ++source)
        if (const auto& place = which.tensor.state[i])
            ATOLL_RETURN_IF_ERROR(read_elements(which, state_input(plan, i), *place, scratch, source));
    return {};
}

// Widens the elements [at, at + count) of the sources, which have been read.
Block& widen_sources(const Elements& which, Beside beside, std::size_t at, std::size_t count, Scratch& scratch) {
    Block& block = scratch.block;
    block.size = count;
    std::size_t source = 0;
    const auto next = [&](DType dtype) {
        const std::span<float> wide = std::span(scratch.wide).subspan(source * kTile, count);
        widen(dtype, wide.data(), scratch.raw_of(source++).data() + at * element_bytes(dtype), count);
        return wide;
    };
    std::vector<std::span<float>>& updates = scratch.updates;
    for (std::size_t i = 0; i < updates.size(); ++i) block.updates[i] = updates[i] = next(which.tensor.inputs[i].dtype);
    if (beside.base) block.base = next(which.tensor.base.dtype);
    for (std::size_t i = 0; beside.state && i < block.state.size(); ++i) {
        block.state[i] = next(DType::kF32);
        if (!which.tensor.state[i]) std::fill(block.state[i].begin(), block.state[i].end(), 0.0F);
    }
    return block;
}

// The rows that the elements [first, first + count) of the tensor touch.
struct RowRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t size() const { return end - begin; }
};

RowRange touched_rows(const Tensor& tensor, std::uint64_t first, std::size_t count) {
    return {static_cast<std::size_t>(first / tensor.row_elements),
            static_cast<std::size_t>((first + count - 1) / tensor.row_elements) + 1};
}

// How much of each input's tokens were those of the elements' rows.
Status read_frequencies(const Elements& which, Scratch& scratch) {
    const Plan& plan = which.plan;
    const RowRange rows = touched_rows(which.tensor, which.first, which.count);
    scratch.counts.resize(rows.size());
    scratch.frequencies.resize(rows.size() * plan.inputs.size());
    for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
        const TokenCounts& counts = plan.token_counts[i];
        const Status read = plan.inputs[i].token_counts->read(counts.offset + rows.begin * sizeof(float),
                                                              std::as_writable_bytes(std::span(scratch.counts)));
        if (!read.ok()) report_fault(plan.options, i);
        ATOLL_RETURN_IF_ERROR(read);
        for (std::size_t row = 0; row < rows.size(); ++row)
            scratch.frequencies[i * rows.size() + row] =
                counts.total > 0 ? static_cast<double>(scratch.counts[row]) / counts.total : 0;
    }
    return {};
}

// Has the block say of which rows its elements [at, at + count) of `which` are.
void set_rows(const Elements& which, std::size_t at, std::size_t count, Scratch& scratch) {
    TokenRows& rows = scratch.block.rows;
    rows.width = which.tensor.row_elements;
    if (rows.width == 0) return;
    const RowRange all = touched_rows(which.tensor, which.first, which.count);
    const RowRange own = touched_rows(which.tensor, which.first + at, count);
    rows.begin = static_cast<std::size_t>((which.first + at) % rows.width);
    rows.frequencies.resize(which.plan.inputs.size());
    for (std::size_t i = 0; i < rows.frequencies.size(); ++i)
        rows.frequencies[i] =
            std::span(scratch.frequencies).subspan(i * all.size() + own.begin - all.begin, own.size());
}

double factor(const Elements& which, std::size_t update) {
    return which.plan.factor(update, which.tensor.row_elements > 0);
}

// Whether some change counts in part only.
bool is_shortened(const Elements& which) {
    for (std::size_t i = 0; i < which.plan.inputs.size(); ++i)
        if (factor(which, i) < 1) return true;
    return false;
}

// Leaves of each widened update's change the part that counts.
void shorten_changes(const Elements& which, Scratch& scratch) {
    for (std::size_t i = 0; i < scratch.updates.size(); ++i) {
        const std::span<float> update = scratch.updates[i];
        const float* base = scratch.block.base.data();
        const double part = factor(which, i);
        if (part == 0)
            std::copy_n(base, update.size(), update.data());
        else if (part < 1)
            best_kernels().shorten(update.data(), base, part, update.size());
    }
}

// What the strategy makes of the elements, or the state that it leaves.
Status combine(const Elements& which, std::span<std::byte> into, Scratch& scratch) {
    const Tensor& tensor = which.tensor;
    const DType dtype = tensor.info.dtype;
    // A mean of numbers that fit fits; a step, or what came from a wider type, may not.
    const bool may_overflow =
        element_bytes(dtype) < sizeof(float) &&
        (!tensor.state.empty() || tensor.row_elements > 0 ||
         std::any_of(
             tensor.inputs.begin(), tensor.inputs.end(), [&](const Place& place) { return place.dtype != dtype; }));
    const bool shortens = is_shortened(which);
    const Beside beside{which.plan.strategy->needs_base() || shortens || which.plan.has_changes, true};
    ATOLL_RETURN_IF_ERROR(read_sources(which, beside, scratch));
    if (tensor.row_elements > 0) ATOLL_RETURN_IF_ERROR(read_frequencies(which, scratch));
    for (std::size_t at = 0; at < which.count; at += kTile) {
        const std::size_t count = std::min(kTile, which.count - at);
        Block& block = widen_sources(which, beside, at, count, scratch);
        set_rows(which, at, count, scratch);
        if (shortens) shorten_changes(which, scratch);
        const std::span<float> result = std::span(scratch.result).first(count);
        which.plan.strategy->combine(block, which.plan.shares, result);
        const std::span<const float> made = tensor.kind == TensorKind::kState ? block.state[tensor.made] : result;
        const std::span<float> seen = may_overflow ? std::span(scratch.wide).first(count) : std::span<float>();
        if (!round_into(dtype, &into[at * element_bytes(dtype)], made, seen)) return blame(which, scratch);
    }
    return {};
}

Status mean_f64(const Elements& which, std::span<std::byte> into, Scratch& scratch) {
    std::vector<double> sum(which.count, 0.0), base;
    const auto take = [&](std::span<const std::byte> raw, std::vector<double>& values) {
        values.resize(which.count);
        std::memcpy(values.data(), raw.data(), raw.size());
    };
    if (is_shortened(which)) {
        ATOLL_TRY(const auto raw, read_elements(which, which.plan.start->base, which.tensor.base, scratch));
        take(raw, base);
    }
    bool finite = true;
    std::vector<double> values;
    for (std::size_t i = 0; i < which.plan.inputs.size(); ++i) {
        ATOLL_TRY(const auto raw, read_input(which, i, scratch));
        take(raw, values);
        const double share = which.plan.shares[i], part = factor(which, i);
        for (std::size_t at = 0; at < sum.size(); ++at) {
            if (part < 1) values[at] = part == 0 ? base[at] : base[at] + part * (values[at] - base[at]);
            sum[at] = i == 0 ? share * values[at] : sum[at] + share * values[at];
            finite = finite && std::isfinite(sum[at]);
        }
    }
    if (!finite) return blame(which, scratch);
    std::memcpy(into.data(), sum.data(), into.size());
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

std::size_t source_count(const Plan& plan) {
    const bool base = plan.strategy->needs_base() || plan.measures || plan.present < 1;
    return plan.inputs.size() + (base ? 1 : 0) + plan.strategy->state().size();
}

Scratch::Scratch(const Plan& plan)
    : raw_bytes(plan.measures ? std::max(plan.options.block_bytes, kTile * sizeof(double)) : plan.options.block_bytes),
      raw(raw_bytes * source_count(plan)),
      whole(sizeof(double)),
      wide(kTile * source_count(plan)),
      result(kTile),
      changes(plan.measures ? kTile : 0),
      updates(plan.inputs.size()) {
    block.updates.resize(plan.inputs.size());
    block.state.resize(plan.strategy->state().size());
}

Status reduce_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                       Scratch& scratch) {
    const Elements which{plan, tensor, first, into.size() / element_bytes(tensor.info.dtype)};
    if (tensor.kind == TensorKind::kCopy) return copy(which, into, scratch);
    return tensor.info.dtype == DType::kF64 ? mean_f64(which, into, scratch) : combine(which, into, scratch);
}

namespace {

// False: one of them is NaN or infinite.
bool add_finite(std::span<const double> values, std::span<ExactSum> sums) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) return false;
        sums[i].add(values[i]);
    }
    return true;
}

// Measures a tile that has been widened. False: some update holds NaN or infinity.
bool measure_tile(const Block& block, std::span<ExactSum> sums, Scratch& scratch) {
    static const std::vector<float> kZeros(kTile);
    const Kernels& kernels = best_kernels();
    const std::span<double> changes = std::span(scratch.changes).first(block.size);
    std::fill(changes.begin(), changes.end(), 0.0);
    for (const auto& update : block.updates)
        kernels.add_change(changes.data(), update.data(), block.base.data(), block.size);
    double values[kSumsPerInput];
    for (std::size_t i = 0; i < block.updates.size(); ++i) {
        kernels.measure(block.updates[i].data(), block.base.data(), changes.data(), block.size, values);
        if (!add_finite(values, sums.subspan(i * kSumsPerInput, kSumsPerInput))) return false;
    }
    std::fill(changes.begin(), changes.end(), 0.0);
    kernels.measure(block.base.data(), kZeros.data(), changes.data(), block.size, values);
    return add_finite(std::span(values).first(1), sums.last(1));
}

}  // namespace

Status measure_tiles(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::uint64_t end,
                     std::span<ExactSum> sums, Scratch& scratch) {
    const Beside beside{.base = true, .state = false};
    const std::size_t block = std::max<std::size_t>(scratch.raw_bytes / tensor.widest / kTile, 1);
    const std::uint64_t elements =
        (tensor.end - tensor.begin) / static_cast<std::uint64_t>(safetensors::size_bytes(tensor.info.dtype));
    for (; first < end; first += block) {
        const std::uint64_t begin = first * kTile;
        const std::uint64_t until = std::min(std::min(first + block, end) * kTile, elements);
        const Elements which{plan, tensor, begin, static_cast<std::size_t>(until - begin)};
        ATOLL_RETURN_IF_ERROR(read_sources(which, beside, scratch));
        for (std::size_t at = 0; at < which.count; at += kTile)
            if (!measure_tile(widen_sources(which, beside, at, std::min(kTile, which.count - at), scratch), sums,
                              scratch))
                return blame(which, scratch);
    }
    return {};
}

}  // namespace atl::aggregate
