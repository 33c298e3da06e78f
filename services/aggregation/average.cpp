#include "services/aggregation/average.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "services/aggregation/average_kernels.h"

namespace atl::aggregation {
namespace {

using safetensors::DType;
using safetensors::Header;
using safetensors::TensorInfo;

// Where a tensor's bytes begin in one input.
struct Place {
    std::size_t file;
    std::uint64_t offset;
};

struct Tensor {
    TensorInfo info;
    std::uint64_t begin;  // bytes from the start of the output file
    std::uint64_t end;
    std::vector<Place> places;  // one an input
};

struct PlannedFile {
    std::string head;             // 8 length bytes and the header, as they stand in the first input
    std::vector<Tensor> tensors;  // by offset, empty ones left out
};

struct Found {
    TensorInfo info;
    Place place;
};
using TensorMap = std::map<std::string, Found, std::less<>>;

struct OpenedFile {
    std::string head;
    Header header;
};

std::string quoted(std::string_view text) {
    return "\"" + std::string(text) + "\"";
}

bool is_floating(DType dtype) {
    return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

bool is_exact(DType dtype) {
    return !is_floating(dtype) && dtype != DType::kF8E4M3 && dtype != DType::kF8E5M2;
}

Result<OpenedFile> read_header(const Input& input, const InputFile& file) {
    const auto named = [&](const Error& error) {
        return Error{error.code, input.name + "/" + file.path + ": " + error.message, file.path};
    };
    std::string head(8, '\0');
    if (file.bytes->size() < head.size()) return named(invalid_argument("", "too short for a safetensors file"));
    if (auto status = file.bytes->read(0, std::as_writable_bytes(std::span(head))); !status.ok()) return status.error();
    const auto length = safetensors::header_length(head, file.bytes->size());
    if (!length.ok()) return named(length.error());
    head.resize(8 + *length);
    ATOLL_RETURN_IF_ERROR(file.bytes->read(8, std::as_writable_bytes(std::span(head)).subspan(8)));
    auto header = safetensors::parse_header(std::string_view(head).substr(8), file.bytes->size());
    if (!header.ok()) return named(header.error());
    return OpenedFile{std::move(head), std::move(header).value()};
}

Result<TensorMap> read_tensors(const Input& input, std::vector<OpenedFile>& opened) {
    if (input.files.empty()) return invalid_argument(input.name, input.name + " has no safetensors file");
    TensorMap tensors;
    for (std::size_t i = 0; i < input.files.size(); ++i) {
        ATOLL_TRY(OpenedFile file, read_header(input, input.files[i]));
        for (const TensorInfo& info : file.header.tensors) {
            const Place place{i, file.header.data_begin + info.begin};
            if (!tensors.emplace(info.name, Found{info, place}).second)
                return invalid_argument(info.name, input.name + " has tensor " + quoted(info.name) + " in two files");
        }
        opened.push_back(std::move(file));
    }
    return tensors;
}

std::string describe(const TensorInfo& info) {
    std::string text = safetensors::to_string(info.dtype);
    text += "[";
    for (std::size_t i = 0; i < info.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(info.shape[i]);
    return text + "]";
}

Status check_same_tensors(const Input& first, const TensorMap& expected, const Input& other, const TensorMap& found) {
    for (const auto& [name, tensor] : expected) {
        const auto at = found.find(name);
        if (at == found.end())
            return invalid_argument(name, other.name + " lacks tensor " + quoted(name) + " of " + first.name);
        const TensorInfo& here = at->second.info;
        if (here.shape != tensor.info.shape || here.dtype != tensor.info.dtype)
            return invalid_argument(name, "tensor " + quoted(name) + " is " + describe(tensor.info) + " in " +
                                              first.name + " but " + describe(here) + " in " + other.name);
    }
    for (const auto& [name, tensor] : found) {
        if (!expected.contains(name))
            return invalid_argument(
                name, other.name + " has tensor " + quoted(name) + " that " + first.name + " does not have");
    }
    return {};
}

// Where each tensor of one file of the output comes from.
Result<PlannedFile> plan_file(OpenedFile opened, const std::vector<TensorMap>& inputs) {
    PlannedFile planned;
    for (const TensorInfo& info : opened.header.tensors) {
        if (!is_floating(info.dtype) && !is_exact(info.dtype))
            return invalid_argument(info.name, "tensor " + quoted(info.name) + " is " +
                                                   safetensors::to_string(info.dtype) + ", which cannot be averaged");
        if (info.begin == info.end) continue;
        const std::uint64_t base = opened.header.data_begin;
        Tensor& tensor = planned.tensors.emplace_back(Tensor{info, base + info.begin, base + info.end, {}});
        for (const TensorMap& tensors : inputs) tensor.places.push_back(tensors.at(info.name).place);
    }
    planned.head = std::move(opened.head);
    return planned;
}

Result<std::vector<double>> normalise(const std::vector<double>& weights, std::size_t count) {
    if (weights.size() != count)
        return invalid_argument("weights", "there are " + std::to_string(weights.size()) + " weights for " +
                                               std::to_string(count) + " inputs");
    const bool valid = std::all_of(weights.begin(), weights.end(), [](double w) { return std::isfinite(w) && w >= 0; });
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (!valid || !(sum > 0) || !std::isfinite(sum))
        return invalid_argument("weights", "must be finite, not negative, and not all zero");
    std::vector<double> shares;
    for (const double weight : weights) shares.push_back(weight / sum);
    return shares;
}

// The first element of `bytes` that is NaN or infinite; -1 if none is.
std::int64_t find_non_finite(DType dtype, std::span<const std::byte> bytes) {
    const std::size_t width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
        double value = 0;
        float single = 0;
        if (dtype == DType::kF64) std::memcpy(&value, &bytes[at], sizeof value);
        if (dtype == DType::kF32) std::memcpy(&single, &bytes[at], sizeof single);
        if (dtype == DType::kF16) best_kernels().widen_f16(&single, &bytes[at], 1);
        if (dtype == DType::kBF16) best_kernels().widen_bf16(&single, &bytes[at], 1);
        if (!std::isfinite(value) || !std::isfinite(single)) return static_cast<std::int64_t>(at / width);
    }
    return -1;
}

constexpr std::size_t kTile = 2048;  // elements widened at a time, 8 KiB: stays in the first-level cache

// sum = (first ? 0 : sum) + weight × stored elements.
void accumulate(DType dtype, std::span<float> sum, const std::byte* stored, float weight, bool first,
                std::span<float> wide) {
    const Kernels& kernels = best_kernels();
    const std::size_t width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    for (std::size_t at = 0; at < sum.size(); at += kTile) {
        const std::size_t count = std::min(kTile, sum.size() - at);
        const std::byte* const from = stored + at * width;
        if (dtype == DType::kF16) kernels.widen_f16(wide.data(), from, count);
        if (dtype == DType::kBF16) kernels.widen_bf16(wide.data(), from, count);
        if (dtype == DType::kF32) std::memcpy(wide.data(), from, count * sizeof(float));
        (first ? kernels.scale : kernels.add)(&sum[at], wide.data(), weight, count);
    }
}

// False if the sum holds NaN or infinity, or rounds to it.
bool round_into(DType dtype, std::byte* out, std::span<const float> sum) {
    const Kernels& kernels = best_kernels();
    if (!kernels.all_finite(sum.data(), sum.size())) return false;
    if (dtype == DType::kF16) kernels.narrow_f16(out, sum.data(), sum.size());
    if (dtype == DType::kBF16) kernels.narrow_bf16(out, sum.data(), sum.size());
    if (dtype == DType::kF32) std::memcpy(out, sum.data(), sum.size_bytes());
    return true;
}

}  // namespace

struct Average::Plan {
    std::vector<Input> inputs;
    std::vector<double> shares;  // sum to one
    std::size_t block_bytes = 0;
    std::vector<OutputFile> files;
    std::vector<PlannedFile> planned;

    Status read_input(const Tensor& tensor, std::size_t input, std::uint64_t offset, std::span<std::byte> into) const {
        const Place& place = tensor.places[input];
        return inputs[input].files[place.file].bytes->read(place.offset + offset, into);
    }
    Status mean_elements(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into, Workspace& space) const;
    Status mean_f64(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into, Workspace& space) const;
    Status same_elements(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into, Workspace& space) const;
    Status elements(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into, Workspace& space) const;
    Status piece(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into, Workspace& space) const;
    Error blame(const Tensor& tensor, std::uint64_t offset, std::size_t size, Workspace& space) const;
};

// Says which input spoils the mean of these elements.
Error Average::Plan::blame(const Tensor& tensor, std::uint64_t offset, std::size_t size, Workspace& space) const {
    const std::span<std::byte> raw = std::span(space.raw_).first(size);
    const auto width = static_cast<std::uint64_t>(safetensors::size_bytes(tensor.info.dtype));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (auto status = read_input(tensor, i, offset, raw); !status.ok()) return status.error();
        const std::int64_t at = find_non_finite(tensor.info.dtype, raw);
        if (at >= 0)
            return invalid_argument(tensor.info.name,
                                    "tensor " + quoted(tensor.info.name) + " of " + inputs[i].name +
                                        " holds NaN or infinity at element " +
                                        std::to_string(offset / width + static_cast<std::uint64_t>(at)));
    }
    return invalid_argument(tensor.info.name, "the mean of tensor " + quoted(tensor.info.name) + " overflows " +
                                                  safetensors::to_string(tensor.info.dtype));
}

Status Average::Plan::mean_elements(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into,
                                    Workspace& space) const {
    const DType dtype = tensor.info.dtype;
    const std::span<std::byte> raw = std::span(space.raw_).first(into.size());
    const std::size_t count = into.size() / static_cast<std::size_t>(safetensors::size_bytes(dtype));
    const std::span<float> sum = std::span(space.sum_).first(count);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        ATOLL_RETURN_IF_ERROR(read_input(tensor, i, offset, raw));
        accumulate(dtype, sum, raw.data(), static_cast<float>(shares[i]), i == 0, space.wide_);
    }
    if (!round_into(dtype, into.data(), sum)) return blame(tensor, offset, into.size(), space);
    return {};
}

Status Average::Plan::mean_f64(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into,
                               Workspace& space) const {
    const std::span<std::byte> raw = std::span(space.raw_).first(into.size());
    std::vector<double> sum(into.size() / sizeof(double), 0.0);
    bool finite = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        ATOLL_RETURN_IF_ERROR(read_input(tensor, i, offset, raw));
        for (std::size_t at = 0; at < sum.size(); ++at) {
            double value;
            std::memcpy(&value, &raw[at * sizeof value], sizeof value);
            sum[at] = i == 0 ? shares[i] * value : sum[at] + shares[i] * value;
            finite = finite && std::isfinite(sum[at]);
        }
    }
    if (!finite) return blame(tensor, offset, into.size(), space);
    std::memcpy(into.data(), sum.data(), into.size());
    return {};
}

Status Average::Plan::same_elements(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into,
                                    Workspace& space) const {
    ATOLL_RETURN_IF_ERROR(read_input(tensor, 0, offset, into));
    const std::span<std::byte> raw = std::span(space.raw_).first(into.size());
    for (std::size_t i = 1; i < inputs.size(); ++i) {
        ATOLL_RETURN_IF_ERROR(read_input(tensor, i, offset, raw));
        if (std::memcmp(raw.data(), into.data(), raw.size()) != 0)
            return invalid_argument(tensor.info.name, "tensor " + quoted(tensor.info.name) + " of " +
                                                          safetensors::to_string(tensor.info.dtype) +
                                                          " differs between " + inputs[0].name + " and " +
                                                          inputs[i].name + ": it cannot be averaged");
    }
    return {};
}

// Whole elements of a tensor, at most a block of them.
Status Average::Plan::elements(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into,
                               Workspace& space) const {
    if (!is_floating(tensor.info.dtype)) return same_elements(tensor, offset, into, space);
    if (tensor.info.dtype == DType::kF64) return mean_f64(tensor, offset, into, space);
    return mean_elements(tensor, offset, into, space);
}

// Any bytes of a tensor: a cut through an element is widened to the whole of it and trimmed.
Status Average::Plan::piece(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> into,
                            Workspace& space) const {
    const auto width = static_cast<std::uint64_t>(safetensors::size_bytes(tensor.info.dtype));
    while (!into.empty()) {
        const std::uint64_t skipped = offset % width;
        std::size_t size = std::min<std::size_t>(into.size(), block_bytes);
        if (skipped == 0 && size >= width) {
            size -= size % width;
            ATOLL_RETURN_IF_ERROR(elements(tensor, offset, into.first(size), space));
        } else {
            size = std::min<std::size_t>(size, width - skipped);
            const std::span<std::byte> whole = std::span(space.mean_).first(width);
            ATOLL_RETURN_IF_ERROR(elements(tensor, offset - skipped, whole, space));
            std::memcpy(into.data(), whole.data() + skipped, size);
        }
        offset += size;
        into = into.subspan(size);
    }
    return {};
}

Average::Workspace::Workspace(const Average& average)
    : raw_(average.plan_->block_bytes), mean_(sizeof(double)), sum_(average.plan_->block_bytes / 2), wide_(kTile) {}

Average::Average(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
Average::Average(Average&&) noexcept = default;
Average& Average::operator=(Average&&) noexcept = default;
Average::~Average() = default;

const std::vector<Average::OutputFile>& Average::files() const {
    return plan_->files;
}

Result<Average> Average::plan(std::vector<Input> inputs, const std::vector<double>& weights,
                              const AverageOptions& options) {
    if (inputs.empty()) return invalid_argument("inputs", "there is nothing to average");
    auto plan = std::make_unique<Plan>();
    ATOLL_TRY(plan->shares, normalise(weights, inputs.size()));
    plan->block_bytes = std::max<std::size_t>(options.block_bytes, sizeof(double));
    std::vector<OpenedFile> opened;
    std::vector<TensorMap> found(inputs.size());
    ATOLL_TRY(found[0], read_tensors(inputs[0], opened));
    for (std::size_t i = 1; i < inputs.size(); ++i) {
        std::vector<OpenedFile> unused;
        ATOLL_TRY(found[i], read_tensors(inputs[i], unused));
        ATOLL_RETURN_IF_ERROR(check_same_tensors(inputs[0], found[0], inputs[i], found[i]));
    }
    for (std::size_t file = 0; file < opened.size(); ++file) {
        plan->files.push_back({inputs[0].files[file].path, inputs[0].files[file].bytes->size()});
        ATOLL_TRY(PlannedFile planned, plan_file(std::move(opened[file]), found));
        plan->planned.push_back(std::move(planned));
    }
    plan->inputs = std::move(inputs);
    return Average(std::move(plan));
}

Status Average::read(std::size_t file, std::uint64_t offset, std::span<std::byte> into, Workspace& workspace) const {
    check(file < plan_->files.size() && offset + into.size() <= plan_->files[file].size,
          "Average::read beyond the output");
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
        ATOLL_RETURN_IF_ERROR(plan_->piece(*tensor, offset - tensor->begin, into.first(size), workspace));
        offset += size;
        into = into.subspan(size);
    }
    return {};
}

}  // namespace atl::aggregation
