#include "trainer/importer/import.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/staged_directory.h"
#include "shared/log/progress.h"
#include "trainer/importer/foreign_model.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/save.h"

namespace atl::importer {
namespace {

namespace fs = std::filesystem;

// Values converted at a time (whole rows, at least one).
constexpr std::int64_t kImportElements = 1 << 18;

// What Meta's files leave out, Hugging Face's config.json says.
Status check_nothing_left_out(const ImportOptions& options) {
    const std::string why = "means nothing here: the model's config.json says it";
    if (options.max_position_embeddings) return invalid_argument("--max-position-embeddings", why);
    if (options.rope_factor) return invalid_argument("--rope-factor", why);
    return {};
}

Status check_tokenizer(const fs::path& directory) {
    if (directory.empty()) return {};
    const auto tokenizer = tokenizer::Tokenizer::open(directory);
    return tokenizer.ok() ? Status() : Status(invalid_argument("--tokenizer", tokenizer.error().message));
}

Result<ForeignModel> open_adapter(const ImportOptions& options, const std::set<std::string>& names) {
    if (names.contains(weights::kAdapterFile)) return in_file(options.from, "its weights are safetensors already");
    if (!names.contains(weights::kAdapterBinFile))
        return in_file(options.from, std::string("is an adapter without ") + weights::kAdapterBinFile);
    const std::string why = "means nothing for an adapter";
    if (!options.tokenizer.empty()) return invalid_argument("--tokenizer", why);
    if (options.max_position_embeddings) return invalid_argument("--max-position-embeddings", why);
    if (options.rope_factor) return invalid_argument("--rope-factor", why);
    return open_adapter_bin(options);
}

Result<ForeignModel> open_foreign(const ImportOptions& options) {
    std::error_code error;
    if (!fs::is_directory(options.from, error))
        return not_found(options.from.string() + " is not a directory" + (error ? ": " + error.message() : ""),
                         "--from");
    ATOLL_TRY(const std::set<std::string> names, file_names_in(options.from));
    const auto has = [&](const char* name) { return names.contains(name); };
    if (holds_adapter(options.from)) return open_adapter(options, names);
    if (has("model.safetensors") || has("model.safetensors.index.json"))
        return in_file(options.from, "its weights are safetensors already");
    if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json")) {
        ATOLL_RETURN_IF_ERROR(check_nothing_left_out(options));
        return open_pytorch_bin(options);
    }
    if (has("consolidated.00.pth")) return open_consolidated(options);
    return in_file(options.from,
                   "holds no pytorch_model.bin, no pytorch_model.bin.index.json, no consolidated.00.pth and no "
                   "adapter_model.bin");
}

// Calls `count` with how many values were written.
template <class Count>
Status write_tensor(const ForeignTensor& tensor, std::vector<float>& buffer, weights::WeightWriter& writer,
                    Count&& count) {
    const std::int64_t columns = std::max<std::int64_t>(tensor.columns(), 1);
    const std::int64_t rows = std::max<std::int64_t>(kImportElements / columns, 1);
    for (std::int64_t begin = 0; begin < tensor.rows(); begin += rows) {
        const std::int64_t end = std::min(begin + rows, tensor.rows());
        buffer.resize(static_cast<std::size_t>((end - begin) * columns));
        ATOLL_RETURN_IF_ERROR(read_rows(tensor, begin, end, buffer));
        ATOLL_RETURN_IF_ERROR(writer.append(buffer));
        count(buffer.size());
    }
    for (const auto& part : tensor.parts) part.file->forget(*part.tensor);
    return {};
}

Result<weights::WeightWriter> create_adapter(const ForeignModel& model, std::vector<weights::TensorSpec> specs,
                                             const ImportOptions& options) {
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(options.out));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(staged.path() / weights::kAdapterConfig, model.config));
    for (weights::TensorSpec& spec : specs) spec.dtype = options.dtype.value_or(spec.dtype);
    return weights::WeightWriter::create(
        std::move(staged), std::move(specs),
        {"adapter_model", weights::kAdapterConfig, {{"format", "pt"}}, std::numeric_limits<std::uint64_t>::max()});
}

Result<weights::WeightWriter> create_out(const ForeignModel& model, const ImportOptions& options) {
    std::vector<weights::TensorSpec> specs;
    for (const ForeignTensor& tensor : model.tensors) specs.push_back(tensor.spec);
    if (holds_adapter(options.from)) return create_adapter(model, std::move(specs), options);
    weights::SaveOptions save;
    save.base = options.tokenizer.empty() ? options.from : options.tokenizer;
    save.config_text = model.config;
    save.dtype = options.dtype;
    save.is_whole_command = true;
    return weights::WeightWriter::create(options.out, std::move(specs), save);
}

Result<weights::ModelSize> write(const ForeignModel& model, const ImportOptions& options) {
    ATOLL_TRY(weights::WeightWriter writer, create_out(model, options));
    std::vector<float> buffer;
    double all = 0, written = 0;
    for (const ForeignTensor& tensor : model.tensors)
        all += static_cast<double>(tensor.rows()) * static_cast<double>(std::max<std::int64_t>(tensor.columns(), 1));
    log::Progress progress("import");
    const auto count = [&](std::size_t values) { progress.at((written += static_cast<double>(values)) / all); };
    for (const ForeignTensor& tensor : model.tensors)
        ATOLL_RETURN_IF_ERROR(write_tensor(tensor, buffer, writer, count));
    ATOLL_RETURN_IF_ERROR(writer.finish());
    return writer.size();
}

}  // namespace

bool holds_adapter(const fs::path& from) {
    std::error_code error;
    return fs::exists(from / weights::kAdapterConfig, error) && !fs::exists(from / "config.json", error) &&
           !fs::exists(from / "params.json", error);
}

Result<weights::ModelSize> import_model(const ImportOptions& options) {
    std::error_code ignored;
    if (fs::equivalent(options.from, options.out, ignored))
        return invalid_argument("--out", "is --from: give another directory");
    ATOLL_RETURN_IF_ERROR(check_tokenizer(options.tokenizer));
    ATOLL_TRY(const ForeignModel model, open_foreign(options));
    return write(model, options);
}

}  // namespace atl::importer
