#include "trainer/weights/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/delta/delta.h"
#include "shared/json/json.h"
#include "shared/model_config/token_counts.h"
#include "trainer/weights/control_variate.h"

namespace atl::weights {
namespace {

constexpr const char* kCompanions[] = {
    "generation_config.json", "tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json",      "vocab.json",      "merges.txt",     "chat_template.jinja",   "chat_template.json",
};

const char* config_name(DType dtype) {
    return dtype == DType::kF16 ? "float16" : dtype == DType::kBF16 ? "bfloat16" : "float32";
}

// Sets the dtype in the text of a config.json; a text that already has it stays as it is, byte by byte.
Result<std::string> with_dtype(const std::filesystem::path& path, const std::string& text, DType dtype) {
    const auto checked = json::parse(text);
    if (!checked.ok()) return invalid_argument(path.string(), path.string() + ": " + checked.error().message);
    if (!checked->is_object()) return invalid_argument(path.string(), path.string() + ": is no JSON object");
    const char* key = checked->contains("torch_dtype") && !checked->contains("dtype") ? "torch_dtype" : "dtype";
    if (checked->value(key, nlohmann::json()) == config_name(dtype)) return text;
    auto config = nlohmann::ordered_json::parse(text);
    config[key] = config_name(dtype);
    return config.dump(2) + "\n";
}

}  // namespace

bool is_weight_file(std::string_view stem, std::string_view name) {
    if (!name.starts_with(stem)) return false;
    name.remove_prefix(stem.size());
    return name == kWeightSuffix || name == kIndexSuffix || (name.starts_with('-') && name.ends_with(kWeightSuffix));
}

bool is_model_file(std::string_view name) {
    return name == "config.json" || name == model_config::kTokenCountsFile || name == delta::kFile ||
           name == delta::kControlVariateFile || is_weight_file("model", name) ||
           std::ranges::find(kCompanions, name) != std::end(kCompanions);
}

std::optional<DType> common_dtype(std::span<const TensorSpec> tensors) {
    if (tensors.empty()) return std::nullopt;
    const DType first = tensors.front().dtype;
    const bool same = std::all_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.dtype == first; });
    return same ? std::optional(first) : std::nullopt;
}

Status copy_model_files(const std::filesystem::path& base, const std::filesystem::path& config,
                        const std::string& config_text, std::optional<DType> dtype, const std::filesystem::path& out) {
    const std::filesystem::path config_path = config.empty() ? base / "config.json" : config;
    std::string text = config_text;
    if (text.empty()) {
        ATOLL_TRY(text, read_file(config_path));
    }
    if (dtype) {
        ATOLL_TRY(text, with_dtype(config_path, text, *dtype));
    }
    ATOLL_RETURN_IF_ERROR(write_file_atomic(out / "config.json", text));
    if (base.empty()) return {};
    for (const char* name : kCompanions) {
        const auto bytes = read_file(base / name);
        if (!bytes.ok() && bytes.error().code == ErrorCode::kNotFound) continue;
        if (!bytes.ok()) return bytes.error();
        ATOLL_RETURN_IF_ERROR(write_file_atomic(out / name, *bytes));
    }
    return {};
}

}  // namespace atl::weights
