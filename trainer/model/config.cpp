#include "trainer/model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "shared/base/file.h"

namespace atl::model {
namespace {

using Json = nlohmann::json;
using tensor::DType;

// Keys that don't change what is computed here (or that parse_* below reads).
constexpr std::array<std::string_view, 46> kKnownKeys = {
    "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps",
    "initializer_range", "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "torch_dtype", "dtype",
    "bos_token_id", "eos_token_id", "pad_token_id", "hidden_act", "attention_bias", "mlp_bias", "attention_dropout",
    "pretraining_tp",
    // Harmless:
    "transformers_version", "use_cache", "return_dict", "output_attentions", "output_hidden_states", "name_or_path",
    "torchscript", "finetuning_task", "id2label", "label2id", "problem_type", "task_specific_params", "tokenizer_class",
    "chunk_size_feed_forward", "is_encoder_decoder", "unsloth_fixed", "unsloth_version", "atoll",
    "base_model_name_or_path", "sep_token_id"};

// Reads one JSON object and keeps the first error.
class Reader {
  public:
    Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

    bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
    const Json& at(const char* key) const { return object_.at(key); }

    std::int64_t integer(const char* key, std::optional<std::int64_t> fallback, std::int64_t min, std::int64_t max) {
        if (!has(key)) return missing(key, fallback);
        const Json& value = at(key);
        if (!value.is_number_integer()) return fail(key, "must be an integer"), min;
        const auto number = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX
                                ? std::numeric_limits<std::int64_t>::max()
                                : value.get<std::int64_t>();
        if (number < min || number > max) {
            fail(key, "must be between " + std::to_string(min) + " and " + std::to_string(max));
        }
        return number;
    }

    double positive(const char* key, std::optional<double> fallback) {
        if (!has(key)) return missing(key, fallback);
        const Json& value = at(key);
        const double number = value.is_number() ? value.get<double>() : 0.0;
        if (!(number > 0.0) || !std::isfinite(number)) return fail(key, "must be a number above 0"), 1.0;
        return number;
    }

    bool boolean(const char* key, bool fallback) {
        if (!has(key)) return fallback;
        if (!at(key).is_boolean()) return fail(key, "must be true or false"), fallback;
        return at(key).get<bool>();
    }

    std::string text(const char* key, std::string fallback) {
        if (!has(key)) return fallback;
        if (!at(key).is_string()) return fail(key, "must be a string"), fallback;
        return at(key).get<std::string>();
    }

    void fail(const char* key, std::string message) {
        if (status_.ok()) status_ = invalid_argument(path_ + key, std::move(message));
    }
    const Status& status() const { return status_; }

  private:
    template <class T>
    T missing(const char* key, std::optional<T> fallback) {
        if (!fallback) fail(key, "is missing");
        return fallback.value_or(T{1});
    }

    const Json& object_;
    std::string path_;
    Status status_;
};

Status check_keys(const Json& object) {
    for (const auto& [key, value] : object.items()) {
        if (key.starts_with('_') || value.is_null()) continue;
        if (std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end()) {
            return invalid_argument(key,
                                    "is not a key of a Llama model that Atoll knows; it may change the mathematics "
                                    "(remove it if it does not)");
        }
    }
    return {};
}

void check_architecture(Reader& reader) {
    static constexpr const char* kOnlyLlama = " is not built: only LlamaForCausalLM is";
    if (!reader.has("architectures")) {
        const std::string type = reader.text("model_type", "");
        if (type != "llama") reader.fail("model_type", "'" + type + "'" + kOnlyLlama);
        return;
    }
    const Json& names = reader.at("architectures");
    if (!names.is_array() || names.size() != 1 || !names[0].is_string()) {
        return reader.fail("architectures", "must be a list of one name");
    }
    const auto name = names[0].get<std::string>();
    if (name != "LlamaForCausalLM") reader.fail("architectures", "'" + name + "'" + kOnlyLlama);
}

// What Llama models may have in transformers and this code does not compute.
void refuse_unbuilt(Reader& reader) {
    for (const char* key : {"attention_bias", "mlp_bias"}) {
        if (reader.boolean(key, false)) reader.fail(key, "true is not built");
    }
    if (const auto activation = reader.text("hidden_act", "silu"); activation != "silu" && activation != "swish") {
        reader.fail("hidden_act", "'" + activation + "' is not built: only silu is");
    }
    if (reader.has("attention_dropout") &&
        !(reader.at("attention_dropout").is_number() && reader.at("attention_dropout").get<double>() == 0.0)) {
        reader.fail("attention_dropout", "is not built: it must be 0");
    }
    if (reader.integer("pretraining_tp", 1, 1, 1 << 20) != 1)
        reader.fail("pretraining_tp", "is not built: it must be 1");
}

// `rope` is rope_parameters, or rope_scaling with rope_theta beside it.
Result<RopeConfig> parse_rope(const Json& object, const char* key, double theta, const ModelConfig& config) {
    if (!object.is_object()) return invalid_argument(key, "must be an object");
    Reader reader(object, std::string(key) + ".");
    RopeConfig rope;
    rope.theta = reader.positive("rope_theta", theta);
    const std::string kind = reader.text("rope_type", reader.text("type", "default"));
    std::vector<std::string_view> used = {"rope_type", "type", "rope_theta", "original_max_position_embeddings"};
    if (kind == "linear" || kind == "llama3") {
        rope.kind = kind == "linear" ? RopeKind::kLinear : RopeKind::kLlama3;
        rope.factor = reader.positive("factor", std::nullopt);
        used.push_back("factor");
    } else if (kind != "default") {
        reader.fail("rope_type", "'" + kind + "' is not built: default, linear and llama3 are");
    }
    if (rope.kind == RopeKind::kLlama3) {
        rope.low_freq_factor = reader.positive("low_freq_factor", std::nullopt);
        rope.high_freq_factor = reader.positive("high_freq_factor", std::nullopt);
        rope.original_max_position_embeddings =
            reader.integer("original_max_position_embeddings", config.max_position_embeddings, 1, INT64_C(1) << 40);
        if (rope.high_freq_factor <= rope.low_freq_factor)
            reader.fail("high_freq_factor", "must exceed low_freq_factor");
        used.insert(used.end(), {"low_freq_factor", "high_freq_factor"});
    }
    for (const auto& [name, value] : object.items()) {
        const bool neutral = name == "partial_rotary_factor" && value.is_number() && value.get<double>() == 1.0;
        if (std::find(used.begin(), used.end(), name) == used.end() && !neutral && !value.is_null()) {
            reader.fail(name.c_str(), "is not built for rope type '" + kind + "'");
        }
    }
    ATOLL_RETURN_IF_ERROR(reader.status());
    return rope;
}

Result<RopeConfig> parse_any_rope(Reader& reader, const ModelConfig& config) {
    const double theta = reader.positive("rope_theta", 10000.0);
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        if (reader.has(key)) return parse_rope(reader.at(key), key, theta, config);
    }
    RopeConfig rope;
    rope.theta = theta;
    return rope;
}

DType parse_dtype(Reader& reader) {
    const char* const key = reader.has("dtype") ? "dtype" : "torch_dtype";
    const std::string name = reader.text(key, "float32");
    if (name == "float16") return DType::kF16;
    if (name == "bfloat16") return DType::kBF16;
    if (name != "float32") reader.fail(key, "'" + name + "' is not one of float32, float16, bfloat16");
    return DType::kF32;
}

void parse_eos(Reader& reader, ModelConfig& config) {
    if (!reader.has("eos_token_id")) return;
    const Json& value = reader.at("eos_token_id");
    for (const Json& id : value.is_array() ? value : Json::array({value})) {
        if (!id.is_number_integer()) return reader.fail("eos_token_id", "must be an integer or a list of integers");
        config.eos_token_ids.push_back(id.get<std::int64_t>());
    }
}

void parse_sizes(Reader& reader, ModelConfig& config) {
    constexpr std::int64_t kMax = INT64_C(1) << 24;
    config.vocab_size = reader.integer("vocab_size", std::nullopt, 1, kMax);
    config.hidden_size = reader.integer("hidden_size", std::nullopt, 1, kMax);
    config.intermediate_size = reader.integer("intermediate_size", std::nullopt, 1, kMax);
    config.num_hidden_layers = reader.integer("num_hidden_layers", std::nullopt, 1, 1 << 16);
    config.num_attention_heads = reader.integer("num_attention_heads", std::nullopt, 1, 1 << 16);
    config.num_key_value_heads = reader.integer("num_key_value_heads", config.num_attention_heads, 1, 1 << 16);
    const std::int64_t heads = std::max<std::int64_t>(config.num_attention_heads, 1);
    if (!reader.has("head_dim") && config.hidden_size % heads != 0) {
        reader.fail("num_attention_heads", "must divide hidden_size when there is no head_dim");
    }
    config.head_dim = reader.integer("head_dim", std::max<std::int64_t>(config.hidden_size / heads, 2), 2, 1 << 16);
    if (config.head_dim % 2 != 0) reader.fail("head_dim", "must be even");
    if (heads % std::max<std::int64_t>(config.num_key_value_heads, 1) != 0) {
        reader.fail("num_key_value_heads", "must divide num_attention_heads");
    }
    config.max_position_embeddings = reader.integer("max_position_embeddings", 2048, 1, INT64_C(1) << 40);
}

Result<ModelConfig> parse_object(const Json& object) {
    ModelConfig config;
    Reader reader(object, "");
    check_architecture(reader);
    ATOLL_RETURN_IF_ERROR(reader.status());
    ATOLL_RETURN_IF_ERROR(check_keys(object));
    refuse_unbuilt(reader);
    parse_sizes(reader, config);
    config.rms_norm_eps = reader.positive("rms_norm_eps", 1e-6);
    config.initializer_range = reader.positive("initializer_range", 0.02);
    config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
    config.dtype = parse_dtype(reader);
    config.bos_token_id = reader.integer("bos_token_id", -1, -1, INT64_C(1) << 40);
    parse_eos(reader, config);
    ATOLL_TRY(config.rope, parse_any_rope(reader, config));
    ATOLL_RETURN_IF_ERROR(reader.status());
    return config;
}

// Llama 3's: high frequencies stay, low ones are divided by the factor, those between are blended.
double llama3_frequency(double frequency, const RopeConfig& rope) {
    const double old_length = static_cast<double>(rope.original_max_position_embeddings);
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < old_length / rope.high_freq_factor) return frequency;
    if (wavelength > old_length / rope.low_freq_factor) return frequency / rope.factor;
    const double smooth =
        (old_length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> ModelConfig::rope_frequencies() const {
    std::vector<float> frequencies;
    for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
        double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
        if (rope.kind == RopeKind::kLinear) frequency /= rope.factor;
        if (rope.kind == RopeKind::kLlama3) frequency = llama3_frequency(frequency, rope);
        frequencies.push_back(static_cast<float>(frequency));
    }
    return frequencies;
}

Result<ModelConfig> parse_config(std::string_view json_text) {
    const Json object = Json::parse(json_text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return invalid_argument("config.json", "is not a JSON object");
    return parse_object(object);
}

Result<ModelConfig> load_config(const std::filesystem::path& model_directory) {
    const auto path = model_directory / "config.json";
    ATOLL_TRY(const std::string text, read_file(path));
    auto config = parse_config(text);
    if (config.ok()) return config;
    Error error = config.error();
    error.message = path.string() + ": " + error.field + " " + error.message;
    return error;
}

}  // namespace atl::model
