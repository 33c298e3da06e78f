#include "shared/aggregate/aggregator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "shared/aggregate/defence.h"
#include "shared/aggregate/pairs.h"
#include "shared/aggregate/plan.h"
#include "shared/aggregate/reduce.h"
#include "shared/aggregate/variates.h"
#include "shared/delta/control_variate.h"

namespace atl::aggregate {
namespace {

constexpr std::size_t kBlocksBytes = 16U << 20;  // of all models together
constexpr std::size_t kBlockBytesMin = 4U << 10;

Status make_elements(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                     Scratch& scratch) {
    if (tensor.kind == TensorKind::kVariate) return make_variate(plan, tensor, first, into, scratch);
    return (tensor.kind == TensorKind::kFactor ? make_factor : reduce_elements)(plan, tensor, first, into, scratch);
}

// Any bytes of a tensor: a cut through an element is widened to the whole of it and trimmed.
Status make_piece(const Plan& plan, const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into,
                  Scratch& scratch) {
    const auto width = static_cast<std::uint64_t>(safetensors::size_bytes(tensor.info.dtype));
    const std::size_t block = std::max<std::size_t>(plan.options.block_bytes / tensor.widest, 1) * width;
    while (!into.empty()) {
        const std::uint64_t skipped = offset % width;
        std::size_t size = std::min<std::size_t>(into.size(), block);
        if (skipped == 0 && size >= width) {
            size -= size % width;
            ATOLL_RETURN_IF_ERROR(make_elements(plan, tensor, offset / width, into.first(size), scratch));
        } else {
            size = std::min<std::size_t>(size, width - skipped);
            const std::span<std::byte> whole = std::span(scratch.whole).first(width);
            ATOLL_RETURN_IF_ERROR(make_elements(plan, tensor, offset / width, whole, scratch));
            std::memcpy(into.data(), whole.data() + skipped, size);
        }
        offset += size;
        into = into.subspan(size);
    }
    return {};
}

double count_elements(const Plan& plan) {
    double count = 0;
    for (const PlannedFile& file : plan.planned)
        for (const Tensor& tensor : file.tensors)
            if (tensor.kind == TensorKind::kCombine || tensor.kind == TensorKind::kFactor)
                count += static_cast<double>(tensor.end - tensor.begin) /
                         static_cast<double>(safetensors::size_bytes(tensor.info.dtype));
    return count;
}

// The largest of what the base's adapters are multiplied with.
double largest_scale(const Plan& plan) {
    double largest = 0;
    for (const PlannedPair& pair : plan.pairs)
        largest = std::max(largest, plan.model(pair.layout).lora.of_rank(pair.start().rank));
    return largest;
}

// Of the inputs' changes and of the base; behind them come those of the control variates.
std::size_t change_sums(const Plan& plan) {
    return plan.inputs.size() * kSumsPerInput + 1;
}

// Of a change to the sum of the others', from the sums of its squares, of the products and of the others' squares.
std::optional<double> find_cosine(double own, double both, double others) {
    const double scale = std::sqrt(own * others);
    if (!(scale > 0)) return std::nullopt;
    return std::clamp(both / scale, -1.0, 1.0);
}

}  // namespace

double LoraScale::of_rank(std::size_t rank) const {
    const auto divisor = static_cast<double>(rank);
    return alpha / (is_rank_stabilized ? std::sqrt(divisor) : divisor);
}

double Truncation::relative_error() const {
    const double all = whole.value();
    return all > 0 ? std::sqrt(left_out.value() / all) : 0;
}

Aggregator::Workspace::Workspace(const Aggregator& aggregator)
    : scratch_(std::make_unique<Scratch>(*aggregator.plan_)) {}
Aggregator::Workspace::Workspace(Workspace&&) noexcept = default;
Aggregator::Workspace::~Workspace() = default;

Truncation Aggregator::Workspace::take_truncation() {
    return std::exchange(scratch_->truncation, {});
}

Aggregator::Aggregator(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
Aggregator::Aggregator(Aggregator&&) noexcept = default;
Aggregator& Aggregator::operator=(Aggregator&&) noexcept = default;
Aggregator::~Aggregator() = default;

const std::vector<Aggregator::OutputFile>& Aggregator::files() const {
    return plan_->files;
}

bool Aggregator::leaves_out(std::size_t file) const {
    return !plan_->has_variates && delta::is_control_variate(plan_->files[file].path);
}

Result<Aggregator> Aggregator::plan(const StrategySpec& strategy, std::vector<Input> inputs,
                                    const std::vector<double>& weights, const AggregatorOptions& options,
                                    std::optional<RoundBase> start) {
    ATOLL_TRY(Plan plan, make_plan(strategy, std::move(inputs), weights, options, std::move(start)));
    const std::size_t share = std::max(kBlocksBytes / source_count(plan), kBlockBytesMin);
    plan.options.block_bytes = std::max(std::min(options.block_bytes, share), sizeof(double));
    return Aggregator(std::make_unique<Plan>(std::move(plan)));
}

bool Aggregator::truncates() const {
    return plan_->strategy->is_of_adapters();
}

std::size_t Aggregator::statistics_count() const {
    return plan_->measures ? change_sums(*plan_) + variate_sums(*plan_) : 0;
}

Status Aggregator::measure(std::size_t file, std::uint64_t offset, std::uint64_t size, std::span<ExactSum> statistics,
                           Workspace& workspace) const {
    check(statistics.size() == statistics_count() && file < plan_->files.size(), "Aggregator::measure of what is not");
    if (!plan_->measures) return {};
    const auto of_changes = statistics.first(change_sums(*plan_)), of_variates = statistics.last(variate_sums(*plan_));
    for (const Tensor& tensor : plan_->planned[file].tensors) {
        const bool is_whole = tensor.kind == TensorKind::kFactor && tensor.is_a;  // with the other matrix
        if (is_whole && tensor.begin >= offset && tensor.begin < offset + size)
            ATOLL_RETURN_IF_ERROR(measure_pair(*plan_, tensor, of_changes, *workspace.scratch_));
        const bool is_variate = tensor.kind == TensorKind::kVariate;
        const bool is_measured = is_variate || tensor.kind == TensorKind::kCombine;
        if (!is_measured || tensor.end <= offset || tensor.begin >= offset + size) continue;
        const std::uint64_t tile = kTile * static_cast<std::uint64_t>(safetensors::size_bytes(tensor.info.dtype));
        const auto tiles_before = [&](std::uint64_t at) {  // that begin before this byte of the file
            return (std::clamp(at, tensor.begin, tensor.end) - tensor.begin + tile - 1) / tile;
        };
        ATOLL_RETURN_IF_ERROR((is_variate ? measure_variate : measure_tiles)(
            *plan_, tensor, tiles_before(offset), tiles_before(offset + size), is_variate ? of_variates : of_changes,
            *workspace.scratch_));
    }
    return {};
}

Result<Prepared> Aggregator::prepare(std::span<const double> statistics, std::span<const Assignment> assigned,
                                     std::span<const EarlierNorm> earlier) {
    check(statistics.size() == statistics_count(), "Aggregator::prepare without all statistics");
    check(assigned.empty() || assigned.size() == plan_->inputs.size(), "an assignment is one input's");
    Prepared prepared{plan_->shares};
    for (double& share : prepared.shares) share *= plan_->present;
    ++plan_->prepared;
    if (!plan_->measures) return prepared;
    std::vector<Change> changes;
    const double base_norm = std::sqrt(statistics[change_sums(*plan_) - 1]);
    for (std::size_t i = 0; i < plan_->inputs.size(); ++i) {
        const Assignment given = assigned.empty() ? Assignment() : assigned[i];
        double reach = find_reach(given, count_elements(*plan_), base_norm);
        if (truncates()) reach = find_reach_of_product(reach, base_norm, largest_scale(*plan_));
        changes.push_back({std::sqrt(statistics[i * kSumsPerInput]), given.effort, reach, given.claimed});
    }
    plan_->parts = parts_that_count(changes, earlier, plan_->spec);
    const auto whole = std::count_if(plan_->parts.begin(), plan_->parts.end(), [](double part) { return part >= 1; });
    for (std::size_t i = 0; i < changes.size(); ++i) {
        const auto sums = statistics.subspan(i * kSumsPerInput, kSumsPerInput);
        const double part = plan_->parts[i];
        // The sum of the others was measured before it was known how much of each counts.
        const bool others_count = whole + (part < 1 ? 1 : 0) == std::ssize(changes);
        const auto cosine = others_count ? find_cosine(sums[0], sums[1], sums[2]) : std::nullopt;
        prepared.figures.push_back({changes[i].norm, cosine, part});
    }
    prepare_variates(*plan_, statistics.last(variate_sums(*plan_)), prepared.figures);
    return prepared;
}

Status Aggregator::read(std::size_t file, std::uint64_t offset, std::span<std::byte> into, Workspace& workspace) const {
    check(file < plan_->files.size() && offset + into.size() <= plan_->files[file].size,
          "Aggregator::read beyond the output");
    const PlannedFile& planned = plan_->planned[file];
    if (offset < planned.head.size()) {
        const std::size_t size = std::min<std::size_t>(into.size(), planned.head.size() - offset);
        std::memcpy(into.data(), planned.head.data() + offset, size);
        offset += size;
        into = into.subspan(size);
    }
    auto tensor = std::upper_bound(planned.tensors.begin(), planned.tensors.end(), offset,
                                   [](std::uint64_t at, const Tensor& candidate) { return at < candidate.end; });
    for (; !into.empty(); ++tensor) {
        check(tensor != planned.tensors.end() && tensor->begin <= offset, "a safetensors header left a gap");
        const std::size_t size = std::min<std::size_t>(into.size(), tensor->end - offset);
        if (tensor->kind == TensorKind::kFactor && tensor->is_a && offset == tensor->begin)
            ATOLL_RETURN_IF_ERROR(count_truncation(*plan_, *tensor, *workspace.scratch_));
        ATOLL_RETURN_IF_ERROR(
            make_piece(*plan_, *tensor, offset - tensor->begin, into.first(size), *workspace.scratch_));
        offset += size;
        into = into.subspan(size);
    }
    return {};
}

}  // namespace atl::aggregate
