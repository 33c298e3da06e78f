#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "shared/base/file.h"
#include "shared/json/json.h"
#include "shared/model_config/config_reader.h"
#include "shared/model_config/model_config.h"

namespace atl::model_config {
namespace {

// Keys that don't change what is computed here (or that are read for every model).
constexpr auto kSharedKeys = std::to_array<std::string_view>(
    {"architectures", "model_type", "torch_dtype", "dtype", "bos_token_id", "eos_token_id", "pad_token_id",
     // Harmless:
     "transformers_version", "use_cache", "return_dict", "output_attentions", "output_hidden_states", "name_or_path",
     "torchscript", "finetuning_task", "id2label", "label2id", "problem_type", "task_specific_params",
     "tokenizer_class", "chunk_size_feed_forward", "is_encoder_decoder", "unsloth_fixed", "unsloth_version", "atoll",
     "base_model_name_or_path", "sep_token_id"});

Result<Json> parse_object(std::string_view text) {
    auto parsed = json::parse(text);
    if (!parsed.ok()) return invalid_argument("", "is " + parsed.error().message);
    if (!parsed->is_object()) return invalid_argument("", "is not a JSON object");
    return parsed;
}

// With the file, and the key that it is about if there is one.
Error in_file(const std::filesystem::path& path, Error error) {
    error.message = path.string() + (error.field.empty() ? " " : ": " + error.field + " ") + error.message;
    return error;
}

std::vector<std::int64_t> parse_eos(ConfigReader& reader) {
    std::vector<std::int64_t> ids;
    if (!reader.has("eos_token_id")) return ids;
    const Json& value = reader.at("eos_token_id");
    for (const Json& id : value.is_array() ? value : Json::array({value})) {
        if (!id.is_number_integer())
            return reader.fail("eos_token_id", "must be an integer or a list of integers"), ids;
        ids.push_back(id.get<std::int64_t>());
    }
    return ids;
}

// A token that the model cannot make would end no text.
Status check_eos(const std::vector<std::int64_t>& ids, std::int64_t vocab_size) {
    for (const std::int64_t id : ids) {
        if (id < 0 || id >= vocab_size)
            return invalid_argument("eos_token_id",
                                    std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_size));
    }
    return {};
}

using Parse = Result<ModelConfig> (*)(const Json& object);

// Of a model_type or an architecture's name; null when it is not built.
Parse find_parse(std::string_view name) {
    if (name == "llama" || name == "LlamaForCausalLM") return parse_llama;
    if (name == "mistral" || name == "MistralForCausalLM") return parse_mistral;
    if (name == "qwen2" || name == "Qwen2ForCausalLM") return parse_qwen2;
    if (name == "qwen3" || name == "Qwen3ForCausalLM") return parse_qwen3;
    if (name == "opt" || name == "OPTForCausalLM") return parse_opt;
    return nullptr;
}

}  // namespace

Status check_keys(const Json& object, std::span<const std::string_view> known, const char* model) {
    const auto holds = [](std::span<const std::string_view> keys, std::string_view key) {
        return std::find(keys.begin(), keys.end(), key) != keys.end();
    };
    for (const auto& [key, value] : object.items()) {
        if (key.starts_with('_') || value.is_null() || holds(known, key) || holds(kSharedKeys, key)) continue;
        return invalid_argument(key, std::string("is not a key of ") + model +
                                         " model that Atoll knows; it may change the mathematics (remove it if it "
                                         "does not)");
    }
    return {};
}

std::int64_t parse_sizes(ConfigReader& reader, ModelConfig& config, const char* intermediate_size) {
    constexpr std::int64_t kMax = INT64_C(1) << 24;
    config.vocab_size = reader.integer("vocab_size", std::nullopt, 1, kMax);
    config.hidden_size = reader.integer("hidden_size", std::nullopt, 1, kMax);
    config.intermediate_size = reader.integer(intermediate_size, std::nullopt, 1, kMax);
    config.num_hidden_layers = reader.integer("num_hidden_layers", std::nullopt, 1, 1 << 12);
    config.num_attention_heads = reader.integer("num_attention_heads", std::nullopt, 1, 1 << 16);
    return std::max<std::int64_t>(config.num_attention_heads, 1);
}

void parse_dtype_and_tokens(ConfigReader& reader, ModelConfig& config) {
    const char* const key = reader.has("dtype") ? "dtype" : "torch_dtype";
    const std::string dtype = reader.text(key, "float32");
    if (dtype == "float16") {
        config.dtype = safetensors::DType::kF16;
    } else if (dtype == "bfloat16") {
        config.dtype = safetensors::DType::kBF16;
    } else if (dtype != "float32") {
        reader.fail(key, "'" + dtype + "' is not one of float32, float16, bfloat16");
    }
    config.bos_token_id = reader.integer("bos_token_id", -1, -1, INT64_C(1) << 40);
    config.eos_token_ids = parse_eos(reader);
}

std::int64_t ModelConfig::length_max() const {
    const std::int64_t positions =
        rope.kind == RopeKind::kDynamic ? std::numeric_limits<std::int32_t>::max() : max_position_embeddings;
    return sliding_window > 0 ? std::min(positions, sliding_window) : positions;
}

std::string_view ModelConfig::length_max_key() const {
    return length_max() == sliding_window ? "sliding_window" : "max_position_embeddings";
}

Result<ModelConfig> parse_config(std::string_view json_text) {
    static constexpr const char* kBuilt =
        " is not built: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM and OPTForCausalLM "
        "are";
    ATOLL_TRY(const Json object, parse_object(json_text));
    ConfigReader reader(object, "");
    // By `architectures` and `model_type`: either, or both of one mind.
    const std::string type = reader.text("model_type", "");
    ATOLL_RETURN_IF_ERROR(reader.status());
    const Parse typed = find_parse(type);
    if (!reader.has("architectures") || (!type.empty() && typed == nullptr)) {
        if (typed != nullptr) return typed(object);
        return invalid_argument("model_type", "'" + type + "'" + kBuilt);
    }
    const Json& names = reader.at("architectures");
    if (!names.is_array() || names.size() != 1 || !names[0].is_string())
        return invalid_argument("architectures", "must be a list of one name");
    const auto name = names[0].get<std::string>();
    const Parse named = find_parse(name);
    if (named == nullptr) return invalid_argument("architectures", "'" + name + "'" + kBuilt);
    if (typed != nullptr && typed != named)
        return invalid_argument("model_type", "'" + type + "' is not that of the architecture " + name);
    return named(object);
}

Result<ModelConfig> parse_config(std::string_view json_text, const std::filesystem::path& file) {
    auto config = parse_config(json_text);
    if (config.ok()) return config;
    return in_file(file, config.error());
}

Result<ModelConfig> load_config(const std::filesystem::path& model_directory) {
    const auto path = model_directory / "config.json";
    ATOLL_TRY(const std::string text, read_file(path));
    return parse_config(text, path);
}

Result<std::vector<std::int64_t>> load_eos_token_ids(const std::filesystem::path& model_directory,
                                                     const ModelConfig& config) {
    constexpr const char* kFile = "generation_config.json";
    const auto text = read_file(model_directory / kFile);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
        const Status known = check_eos(config.eos_token_ids, config.vocab_size);
        if (!known.ok()) return in_file(model_directory / "config.json", known.error());
        return config.eos_token_ids;
    }
    if (!text.ok()) return text.error();
    const auto object = parse_object(*text);
    if (!object.ok()) return in_file(model_directory / kFile, object.error());
    ConfigReader reader(*object, "");
    auto ids = parse_eos(reader);
    const Status status = reader.status().ok() ? check_eos(ids, config.vocab_size) : reader.status();
    if (!status.ok()) return in_file(model_directory / kFile, status.error());
    return ids;
}

}  // namespace atl::model_config
