#include "trainer/weights/adapter.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "shared/base/file.h"
#include "shared/json/json.h"

namespace atl::weights {
namespace {

constexpr std::uint64_t kOneFile = std::numeric_limits<std::uint64_t>::max();  // never shards
constexpr std::int64_t kRankMax = 1 << 16;
constexpr const char* kBaseDirectory = "base_model_name_or_path";
constexpr const char* kQuantization = "atoll.base_quantization";  // a key of the metadata
constexpr const char* kBaseSha256 = "atoll.base_sha256";          // another

// What may be there in any case: it says nothing about the mathematics of a trained adapter.
constexpr std::array kHarmless = {
    "auto_mapping", kBaseDirectory, "revision",     "task_type",     "inference_mode",    "peft_version",
    "eva_config",   "loftq_config", "corda_config", "megatron_core", "qalora_group_size", "runtime_config",
};

// What changes the mathematics unless it is null, false, empty or "none".
constexpr std::array kMustBeUnset = {
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "bias",
    "ensure_weight_tying",
    "exclude_modules",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "layers_pattern",
    "layers_to_transform",
    "lora_bias",
    "lora_ga_config",
    "megatron_config",
    "modules_to_save",
    "monteclora_config",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "use_rslora",
    "velora_config",
};

std::vector<std::string> read_targets(json::ObjectReader& reader) {
    std::vector<std::string> targets;
    const json::Json& value = reader.any_or_null("target_modules");
    if (value == "all-linear") return {"all-linear"};
    if (!value.is_array() || value.empty()) {
        reader.fail("target_modules", "must be a list of module names (a pattern is not built)");
        return targets;
    }
    for (const json::Json& target : value) {
        if (!target.is_string()) reader.fail("target_modules", "must be a list of module names");
        if (target.is_string()) targets.push_back(target.get<std::string>());
    }
    std::ranges::sort(targets);
    return targets;
}

Result<model::LoraOptions> parse_adapter_config(const json::Json& config) {
    json::ObjectReader reader(config);
    reader.one_of("peft_type", {"LORA"}, "");
    model::LoraOptions options;
    options.rank = reader.required_integer("r", 1, kRankMax);
    options.alpha = reader.number_or("lora_alpha", 8, 0, 1e9);
    options.dropout = reader.number_or("lora_dropout", 0, 0, 0.999999);
    options.targets = read_targets(reader);
    for (const char* key : kHarmless) reader.any_or_null(key);
    // Other ways to begin ("pissa", "olora", "corda", …) take what the adapter begins with out of the base, and peft
    // does so again whenever it loads one.
    const json::Json& began = reader.any_or_null("init_lora_weights");
    if (!began.is_null() && !began.is_boolean() && began != "gaussian" && began != "eva" && began != "orthogonal")
        reader.fail("init_lora_weights", "changes the base model in a way that is not built");
    for (const char* key : kMustBeUnset) {
        const json::Json& value = reader.any_or_null(key);
        const bool is_unset =
            value.is_null() || value == false || value == "none" || (value.is_structured() && value.empty());
        if (!is_unset) reader.fail(key, "is not built; only plain LoRA is");
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return options;
}

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

std::string config_text(const model::LoraOptions& options, const std::string& base) {
    const nlohmann::ordered_json config = {
        {kBaseDirectory, base},
        {"bias", "none"},
        {"fan_in_fan_out", false},
        {"inference_mode", true},
        {"init_lora_weights", true},
        {"lora_alpha", options.alpha},
        {"lora_dropout", options.dropout},
        {"modules_to_save", nullptr},
        {"peft_type", "LORA"},
        {"r", options.rank},
        {"target_modules", options.targets.front() == "all-linear" ? nlohmann::ordered_json("all-linear")
                                                                   : nlohmann::ordered_json(options.targets)},
        {"task_type", "CAUSAL_LM"},
        {"use_dora", false},
        {"use_rslora", false},
    };
    return config.dump(2) + "\n";
}

}  // namespace

Result<model::LoraOptions> load_adapter_config(const std::filesystem::path& directory) {
    ATOLL_TRY(const json::Json config, read_config(directory));
    auto options = parse_adapter_config(config);
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
    const auto base = config.find(kBaseDirectory);
    return AdapterBase{base != config.end() && base->is_string() ? base->get<std::string>() : "", told(kQuantization),
                       told(kBaseSha256)};
}

std::string other_format(const AdapterBase& trained_on, const std::string& quantize) {
    return trained_on.quantization == quantize ? std::string() : trained_on.quantization;
}

Result<WeightWriter> create_adapter(const std::filesystem::path& out, std::vector<TensorSpec> tensors,
                                    const model::LoraOptions& options, const AdapterBase& base) {
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(out));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(staged.path() / kAdapterConfig, config_text(options, base.directory)));
    const std::map<std::string, std::string> metadata = {
        {"format", "pt"}, {kQuantization, base.quantization}, {kBaseSha256, base.sha256}};
    return WeightWriter::create(std::move(staged), std::move(tensors),
                                {"adapter_model", kAdapterConfig, metadata, kOneFile});
}

}  // namespace atl::weights
