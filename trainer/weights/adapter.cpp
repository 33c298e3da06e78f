#include "trainer/weights/adapter.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "shared/base/file.h"
#include "shared/json/json.h"

namespace atl::weights {
namespace {

constexpr std::uint64_t kOneFile = std::numeric_limits<std::uint64_t>::max();  // never shards
constexpr const char* kBaseSha256 = "atoll.base_sha256";                       // a key of the metadata

Error wrong_config(const std::filesystem::path& directory, const std::string& why) {
    const std::string path = (directory / kAdapterConfig).string();
    return invalid_argument(path, path + ": " + why);
}

// The object that adapter_config.json is.
Result<json::Json> read_config(const std::filesystem::path& directory) {
    ATOLL_TRY(const std::string text, read_file(directory / kAdapterConfig));
    auto config = json::parse(text);
    if (!config.ok()) return wrong_config(directory, config.error().message);
    if (!config->is_object()) return wrong_config(directory, "is no JSON object");
    return config;
}

}  // namespace

Result<model::LoraOptions> load_adapter_config(const std::filesystem::path& directory) {
    ATOLL_TRY(const json::Json config, read_config(directory));
    auto options = adapter::parse_config(config);
    if (!options.ok()) return wrong_config(directory, describe(options.error()));
    return options;
}

Result<AdapterBase> load_adapter_base(const std::filesystem::path& directory) {
    ATOLL_TRY(const json::Json config, read_config(directory));
    ATOLL_TRY(const auto file, safetensors::File::open(directory / kAdapterFile));
    const auto told = [&](const char* key) {
        const auto found = file.header().metadata.find(key);
        return found == file.header().metadata.end() ? std::string() : found->second;
    };
    const auto base = config.find(adapter::kBaseName);
    return AdapterBase{base != config.end() && base->is_string() ? base->get<std::string>() : "",
                       told(adapter::kQuantizationKey), told(kBaseSha256)};
}

std::string other_format(const AdapterBase& trained_on, const std::string& quantize) {
    return trained_on.quantization == quantize ? std::string() : trained_on.quantization;
}

Result<std::map<std::string, std::string>> stage_adapter(const StagedDirectory& staged,
                                                         const model::LoraOptions& options, const AdapterBase& base) {
    ATOLL_RETURN_IF_ERROR(
        write_file_atomic(staged.path() / kAdapterConfig, adapter::config_text(options, base.directory)));
    return std::map<std::string, std::string>{
        {"format", "pt"}, {adapter::kQuantizationKey, base.quantization}, {kBaseSha256, base.sha256}};
}

Result<WeightWriter> create_adapter(const std::filesystem::path& out, std::vector<TensorSpec> tensors,
                                    const model::LoraOptions& options, const AdapterBase& base) {
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(out));
    ATOLL_TRY(const auto metadata, stage_adapter(staged, options, base));
    return WeightWriter::create(std::move(staged), std::move(tensors),
                                {"adapter_model", kAdapterConfig, metadata, kOneFile});
}

}  // namespace atl::weights
