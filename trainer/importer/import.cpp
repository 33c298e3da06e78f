#include "trainer/importer/import.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared/log/progress.h"
#include "trainer/importer/foreign_model.h"
#include "trainer/tokenizer/tokenizer.h"
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

Result<ForeignModel> open_foreign(const ImportOptions& options) {
    std::error_code error;
    if (!fs::is_directory(options.from, error))
        return not_found(options.from.string() + " is not a directory" + (error ? ": " + error.message() : ""),
                         "--from");
    ATOLL_TRY(const std::set<std::string> names, file_names_in(options.from));
    const auto has = [&](const char* name) { return names.contains(name); };
    if (has("model.safetensors") || has("model.safetensors.index.json"))
        return in_file(options.from, "its weights are safetensors already");
    if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json")) {
        ATOLL_RETURN_IF_ERROR(check_nothing_left_out(options));
        return open_pytorch_bin(options);
    }
    if (has("consolidated.00.pth")) return open_consolidated(options);
    return in_file(options.from,
                   "holds no pytorch_model.bin, no pytorch_model.bin.index.json and no consolidated.00.pth");
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

Result<weights::ModelSize> write(const ForeignModel& model, const ImportOptions& options) {
    std::vector<weights::TensorSpec> specs;
    for (const ForeignTensor& tensor : model.tensors) specs.push_back(tensor.spec);
    weights::SaveOptions save;
    save.base = options.tokenizer.empty() ? options.from : options.tokenizer;
    save.config_text = model.config;
    save.dtype = options.dtype;
    save.is_whole_command = true;
    ATOLL_TRY(weights::WeightWriter writer, weights::WeightWriter::create(options.out, std::move(specs), save));
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

Result<weights::ModelSize> import_model(const ImportOptions& options) {
    std::error_code ignored;
    if (fs::equivalent(options.from, options.out, ignored))
        return invalid_argument("--out", "is --from: give another directory");
    ATOLL_RETURN_IF_ERROR(check_tokenizer(options.tokenizer));
    ATOLL_TRY(const ForeignModel model, open_foreign(options));
    return write(model, options);
}

}  // namespace atl::importer
