// Llama and the families that differ from it in a few points: Mistral, Qwen2, Qwen3.

#include <algorithm>
#include <array>
#include <string_view>

#include "shared/model_config/config_reader.h"

namespace atl::model_config {
namespace {

// Of all these families.
constexpr auto kKeys = std::to_array<std::string_view>(
    {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "initializer_range",
     "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "hidden_act", "attention_dropout"});
constexpr auto kLlamaKeys =
    std::to_array<std::string_view>({"attention_bias", "mlp_bias", "pretraining_tp", "rope_interleaved",
                                     // Harmless: in the configurations of Llama 1, Llama 2 and SmolLM2.
                                     "max_sequence_length", "max_length", "is_llama_config", "transformers.js_config"});
constexpr auto kMistralKeys = std::to_array<std::string_view>({"sliding_window"});
constexpr auto kQwen2Keys = std::to_array<std::string_view>(
    {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types", "use_mrope"});
constexpr auto kQwen3Keys = std::to_array<std::string_view>(
    {"attention_bias", "use_sliding_window", "sliding_window", "max_window_layers", "layer_types"});

// What transformers assumes of a family where config.json says nothing.
struct Defaults {
    std::int64_t key_value_heads = 0;  // 0, or null in config.json: as many as query heads
    std::int64_t head_channels = 0;    // 0: hidden_size / num_attention_heads
    std::int64_t positions = 0;
};

// What any of these models may have in transformers and this code does not compute.
void refuse_unbuilt(ConfigReader& reader) {
    if (const auto activation = reader.text("hidden_act", "silu"); activation != "silu" && activation != "swish") {
        reader.fail("hidden_act", "'" + activation + "' is not built: only silu is");
    }
    if (reader.has("attention_dropout") &&
        !(reader.at("attention_dropout").is_number() && reader.at("attention_dropout").get<double>() == 0.0)) {
        reader.fail("attention_dropout", "is not built: it must be 0");
    }
}

// What Qwen's models may have besides. Where no window is used, the other keys about windows mean nothing.
void refuse_unbuilt_qwen(ConfigReader& reader) {
    for (const char* key : {"use_sliding_window", "use_mrope"}) {
        if (reader.boolean(key, false)) reader.fail(key, "true is not built");
    }
    if (!reader.has("layer_types")) return;
    const Json& types = reader.at("layer_types");
    const auto is_full = [](const Json& type) { return type == "full_attention"; };
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_full))
        reader.fail("layer_types", "must be a list of 'full_attention': others are not built");
}

void parse_heads(ConfigReader& reader, const Json& object, const Defaults& defaults, ModelConfig& config) {
    const std::int64_t heads = std::max<std::int64_t>(config.num_attention_heads, 1);
    const bool as_many = object.contains("num_key_value_heads") || defaults.key_value_heads == 0;
    config.num_key_value_heads =
        reader.integer("num_key_value_heads", as_many ? heads : defaults.key_value_heads, 1, 1 << 16);
    if (!reader.has("head_dim") && defaults.head_channels == 0 && config.hidden_size % heads != 0) {
        reader.fail("num_attention_heads", "must divide hidden_size when there is no head_dim");
    }
    const std::int64_t share = std::max<std::int64_t>(config.hidden_size / heads, 2);
    config.head_dim =
        reader.integer("head_dim", defaults.head_channels > 0 ? defaults.head_channels : share, 2, 1 << 16);
    if (config.head_dim % 2 != 0) reader.fail("head_dim", "must be even");
    if (heads % std::max<std::int64_t>(config.num_key_value_heads, 1) != 0) {
        reader.fail("num_key_value_heads", "must divide num_attention_heads");
    }
}

// What all these families say in the same words.
Result<ModelConfig> parse_shared(ConfigReader& reader, const Json& object, const Defaults& defaults,
                                 const Architecture& architecture) {
    ModelConfig config;
    config.architecture = architecture;
    refuse_unbuilt(reader);
    parse_sizes(reader, config, "intermediate_size");
    parse_heads(reader, object, defaults, config);
    config.max_position_embeddings = reader.integer("max_position_embeddings", defaults.positions, 1, INT64_C(1) << 40);
    config.norm_eps = reader.positive("rms_norm_eps", 1e-6);
    config.initializer_range = reader.positive("initializer_range", 0.02);
    config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
    parse_dtype_and_tokens(reader, config);
    ATOLL_TRY(config.rope, parse_rope(reader, config));
    ATOLL_RETURN_IF_ERROR(reader.status());
    return config;
}

Status check_family_keys(const Json& object, std::span<const std::string_view> own, const char* model) {
    std::vector<std::string_view> known(kKeys.begin(), kKeys.end());
    known.insert(known.end(), own.begin(), own.end());
    return check_keys(object, known, model);
}

}  // namespace

Result<ModelConfig> parse_llama(const Json& object) {
    ATOLL_RETURN_IF_ERROR(check_family_keys(object, kLlamaKeys, "a Llama"));
    ConfigReader reader(object, "");
    for (const char* key : {"attention_bias", "mlp_bias", "rope_interleaved"}) {
        if (reader.boolean(key, false)) reader.fail(key, "true is not built");
    }
    if (reader.integer("pretraining_tp", 1, 1, 1 << 20) != 1)
        reader.fail("pretraining_tp", "is not built: it must be 1");
    return parse_shared(reader, object, {.positions = 2048}, {});
}

// Jiang et al., arXiv:2310.06825.
Result<ModelConfig> parse_mistral(const Json& object) {
    constexpr std::int64_t kWindow = 4096;  // where config.json says nothing; null: none
    ATOLL_RETURN_IF_ERROR(check_family_keys(object, kMistralKeys, "a Mistral"));
    ConfigReader reader(object, "");
    const std::int64_t window = object.contains("sliding_window") ? 0 : kWindow;
    const std::int64_t sliding_window = reader.integer("sliding_window", window, 1, INT64_C(1) << 40);
    ATOLL_TRY(ModelConfig config,
              parse_shared(reader, object, {.key_value_heads = 8, .positions = 131072}, {.model_type = "mistral"}));
    config.sliding_window = sliding_window;
    return config;
}

// Yang et al., arXiv:2407.10671.
Result<ModelConfig> parse_qwen2(const Json& object) {
    ATOLL_RETURN_IF_ERROR(check_family_keys(object, kQwen2Keys, "a Qwen2"));
    ConfigReader reader(object, "");
    refuse_unbuilt_qwen(reader);
    return parse_shared(reader, object, {.key_value_heads = 32, .positions = 32768},
                        {.model_type = "qwen2", .qkv_bias = true});
}

// Yang et al., arXiv:2505.09388.
Result<ModelConfig> parse_qwen3(const Json& object) {
    ATOLL_RETURN_IF_ERROR(check_family_keys(object, kQwen3Keys, "a Qwen3"));
    ConfigReader reader(object, "");
    refuse_unbuilt_qwen(reader);
    const bool biased = reader.boolean("attention_bias", false);
    return parse_shared(reader, object, {.key_value_heads = 32, .head_channels = 128, .positions = 32768},
                        {.model_type = "qwen3", .head_norms = true, .qkv_bias = biased, .out_bias = biased});
}

}  // namespace atl::model_config
