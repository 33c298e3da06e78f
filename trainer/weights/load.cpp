#include "trainer/weights/load.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "shared/delta/base_digest.h"
#include "shared/model_config/tensors.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/storage.h"

namespace atl::weights {
namespace {

using safetensors::TensorInfo;

// Elements read between two searches for what is not finite: they stay in the second-level cache.
constexpr std::size_t kPieceElements = 1 << 16;

Error about(const std::filesystem::path& path, std::string_view name, const std::string& what) {
    return invalid_argument(path.string(), path.string() + ": tensor \"" + std::string(name) + "\" " + what);
}

}  // namespace

std::vector<TensorSpec> tensor_specs(const model::Model& model, bool adapters, DType dtype) {
    std::vector<TensorSpec> specs;
    for (const model::FsdpUnit& unit : model.units) {
        if (unit.is_adapter != adapters) continue;
        for (const model::Parameter& parameter : unit.parameters)
            specs.push_back({parameter.name, parameter.shape_in_file(), dtype});
    }
    return specs;
}

WeightReader::WeightReader(std::filesystem::path directory, safetensors::Model model, const char* config)
    : directory_(std::move(directory)), config_(config), model_(std::move(model)) {}

Result<WeightReader> WeightReader::open(const std::filesystem::path& directory) {
    auto opened = safetensors::Model::open(directory);
    std::error_code error;
    for (const char* file : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
        if (opened.ok() || !std::filesystem::exists(directory / file, error)) continue;
        return not_found(opened.error().message + ", but " + file + ": `atoll-trainer import --from " +
                             directory.string() + "` makes a model of it",
                         directory.string());
    }
    ATOLL_TRY(safetensors::Model model, std::move(opened));
    return WeightReader(directory, std::move(model), "config.json");
}

Result<WeightReader> WeightReader::open_adapter(const std::filesystem::path& directory) {
    std::error_code error;
    if (!std::filesystem::exists(directory / kAdapterFile, error) &&
        std::filesystem::exists(directory / kAdapterBinFile, error))
        return not_found(directory.string() + " has no " + kAdapterFile + ", but " + kAdapterBinFile +
                             ": `atoll-trainer import --from " + directory.string() + "` makes an adapter of it",
                         directory.string());
    ATOLL_TRY(safetensors::Model model, safetensors::Model::open_file(directory / kAdapterFile));
    return WeightReader(directory, std::move(model), "this model");
}

Status WeightReader::check_tensors(std::span<const TensorSpec> expected, std::span<const std::string> ignorable) const {
    return model_config::check_tensors(model_, expected, ignorable, config_, directory_.string());
}

Status WeightReader::read(std::string_view name, std::int64_t begin, std::int64_t end, std::span<float> out) const {
    const auto* entry = model_.find(name);
    if (entry == nullptr) return about(directory_, name, "is missing");
    const TensorInfo& tensor = *entry->tensor;
    check(begin >= 0 && begin <= end && end <= tensor.element_count() &&
              out.size() == static_cast<std::size_t>(end - begin),
          "WeightReader::read: a range outside the tensor, or another size of the buffer");
    if (!model_config::is_weight_dtype(tensor.dtype))
        return about(entry->file->path(), name,
                     std::string("is ") + to_string(tensor.dtype) + ", not F32, F16 or BF16");
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(tensor.dtype));
    const bool as_it_is = tensor.dtype == DType::kF32;
    const auto scratch = std::make_unique_for_overwrite<std::byte[]>(as_it_is ? 0 : kPieceElements * width);
    for (std::size_t at = 0; at < out.size(); at += kPieceElements) {
        const auto piece = out.subspan(at, std::min(kPieceElements, out.size() - at));
        const auto read = as_it_is ? std::as_writable_bytes(piece) : std::span(scratch.get(), piece.size() * width);
        ATOLL_RETURN_IF_ERROR(entry->file->read(tensor, (static_cast<std::size_t>(begin) + at) * width, read));
        if (as_it_is ? all_finite(piece) : widen(tensor.dtype, read, piece)) continue;
        const auto bad = std::find_if(piece.begin(), piece.end(), [](float value) { return !std::isfinite(value); });
        return about(entry->file->path(), name,
                     "holds a value that is not finite, at element " +
                         std::to_string(begin + static_cast<std::int64_t>(at) + (bad - piece.begin())));
    }
    return {};
}

Status WeightReader::check_tied_head(const std::string& table, int part, int parts) const {
    const auto *const head = model_.find(model_config::kHeadWeight), *const tied = model_.find(table);
    if (head == nullptr || tied == nullptr) return {};
    const auto differs = [&] { return about(head->file->path(), model_config::kHeadWeight, kDiffersFromTable); };
    if (head->tensor->shape != tied->tensor->shape) return differs();
    const std::int64_t elements = tied->tensor->element_count(), end = elements * (part + 1) / parts;
    std::vector<float> ours(kPieceElements), theirs(kPieceElements);
    for (std::int64_t at = elements * part / parts; at < end; at += static_cast<std::int64_t>(ours.size())) {
        ours.resize(std::min(kPieceElements, static_cast<std::size_t>(end - at)));
        theirs.resize(ours.size());
        ATOLL_RETURN_IF_ERROR(read(table, at, at + std::ssize(ours), ours));
        ATOLL_RETURN_IF_ERROR(read(model_config::kHeadWeight, at, at + std::ssize(theirs), theirs));
        if (ours != theirs) return differs();
    }
    return {};
}

Result<std::string> WeightReader::sha256(std::string_view name,
                                         const std::function<void(std::int64_t bytes)>& on_read) const {
    const auto* entry = model_.find(name);
    if (entry == nullptr)
        return not_found(directory_.string() + ": no tensor \"" + std::string(name) + "\"", directory_.string());
    return delta::tensor_sha256(*entry->file, *entry->tensor, on_read);
}

std::vector<TensorSpec> WeightReader::tensors() const {
    std::vector<TensorSpec> specs;
    for (const auto& entry : model_.entries())
        specs.push_back({entry.tensor->name, entry.tensor->shape, entry.tensor->dtype});
    return specs;
}

Result<DType> WeightReader::dtype(std::string_view name) const {
    const auto* entry = model_.find(name);
    if (entry == nullptr)
        return not_found(directory_.string() + ": no tensor \"" + std::string(name) + "\"", directory_.string());
    return entry->tensor->dtype;
}

}  // namespace atl::weights
