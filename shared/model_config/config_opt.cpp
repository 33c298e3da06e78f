#include <algorithm>
#include <array>
#include <string_view>

#include "shared/model_config/config_reader.h"

namespace atl::model_config {
namespace {

// Zhang et al., arXiv:2205.01068.
constexpr Architecture kOpt = {.model_type = "opt",
                               .norm = NormKind::kLayer,
                               .activation = Activation::kRelu,
                               .positions = Positions::kLearned,
                               .qkv_bias = true,
                               .out_bias = true,
                               .feed_forward_bias = true,
                               .prefix = "model.decoder.",
                               .attention_norm = "self_attn_layer_norm",
                               .out = "self_attn.out_proj",
                               .feed_forward_norm = "final_layer_norm",
                               .gate = {},
                               .up = "fc1",
                               .down = "fc2",
                               .final_norm = "final_layer_norm"};

constexpr auto kOptKeys = std::to_array<std::string_view>(
    {"vocab_size", "hidden_size", "ffn_dim", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
     "word_embed_proj_dim", "do_layer_norm_before", "_remove_final_layer_norm", "enable_bias",
     "layer_norm_elementwise_affine", "activation_function", "init_std", "tie_word_embeddings",
     // Random omission is a setting of training, and not one that Atoll applies.
     "dropout", "attention_dropout", "activation_dropout", "layerdrop",
     // Read by the tokenizer of old versions.
     "prefix"});

// What OPT models may have in transformers and this code does not compute.
void refuse_unbuilt_opt(ConfigReader& reader) {
    struct Switch {
        const char* key;
        bool built;
    };
    for (const auto& [key, built] : {Switch{"do_layer_norm_before", true}, Switch{"_remove_final_layer_norm", false},
                                     Switch{"enable_bias", true}, Switch{"layer_norm_elementwise_affine", true}}) {
        if (reader.boolean(key, built) != built)
            reader.fail(key, std::string(built ? "false" : "true") + " is not built");
    }
    if (const auto activation = reader.text("activation_function", "relu"); activation != "relu")
        reader.fail("activation_function", "'" + activation + "' is not built: only relu is");
}

}  // namespace

Result<ModelConfig> parse_opt(const Json& object) {
    ATOLL_RETURN_IF_ERROR(check_keys(object, kOptKeys, "an OPT"));
    ConfigReader reader(object, "");
    ModelConfig config;
    config.architecture = kOpt;
    refuse_unbuilt_opt(reader);
    constexpr std::int64_t kMax = INT64_C(1) << 24;
    const std::int64_t heads = parse_sizes(reader, config, "ffn_dim");
    if (config.hidden_size % heads != 0) reader.fail("num_attention_heads", "must divide hidden_size");
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = config.hidden_size / heads;
    config.word_embed_proj_dim = reader.integer("word_embed_proj_dim", config.hidden_size, 1, kMax);
    config.max_position_embeddings = reader.integer("max_position_embeddings", 2048, 1, kMax);
    config.norm_eps = 1e-5;  // torch.nn.LayerNorm's
    config.initializer_range = reader.positive("init_std", 0.02);
    config.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
    parse_dtype_and_tokens(reader, config);
    ATOLL_RETURN_IF_ERROR(reader.status());
    return config;
}

}  // namespace atl::model_config
