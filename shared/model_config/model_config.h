#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/safetensors/safetensors.h"

namespace atl::model_config {

// How rotary frequencies are stretched for contexts longer than the model was pretrained on.
enum class RopeKind : std::uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };

struct RopeConfig {
    RopeKind kind = RopeKind::kDefault;
    double theta = 10000.0;
    double factor = 1.0;                                // all but default
    double low_freq_factor = 1.0;                       // llama3
    double high_freq_factor = 4.0;                      // llama3
    std::int64_t original_max_position_embeddings = 0;  // llama3, yarn
    double beta_fast = 32.0;                            // yarn: rotations over that context, from which on …
    double beta_slow = 1.0;                             // … frequencies stay, and up to which they are divided
    bool truncate = true;                               // yarn: the pairs of channels between are whole numbers
    double attention_factor = 1.0;                      // yarn: of every cosine and sine
};

enum class NormKind : std::uint8_t { kRms, kLayer };
enum class Activation : std::uint8_t { kSwiglu, kRelu };
enum class Positions : std::uint8_t { kRope, kLearned };

// Where families of decoders differ, and what they call their tensors. The defaults are Llama's (Touvron et al.,
// arXiv:2302.13971).
struct Architecture {
    std::string_view model_type = "llama";  // config.json's
    NormKind norm = NormKind::kRms;
    Activation activation = Activation::kSwiglu;
    Positions positions = Positions::kRope;
    bool head_norms = false;  // RMS norms of each head of query and key, before they are rotated
    bool qkv_bias = false;
    bool out_bias = false;  // of attention's last linear
    bool feed_forward_bias = false;

    std::string_view prefix = "model.";                   // of all names but lm_head
    std::string_view attention_norm = "input_layernorm";  // of a layer, as all up to `down`
    std::string_view out = "self_attn.o_proj";
    std::string_view feed_forward_norm = "post_attention_layernorm";
    std::string_view gate = "mlp.gate_proj";
    std::string_view up = "mlp.up_proj";
    std::string_view down = "mlp.down_proj";
    std::string_view final_norm = "norm";
};

// What config.json of a Hugging Face model directory says, with Llama's names.
struct ModelConfig {
    Architecture architecture;
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t max_position_embeddings = 0;
    std::int64_t sliding_window = 0;       // Mistral: tokens that a query sees, itself included; 0: all before it
    std::int64_t word_embed_proj_dim = 0;  // OPT: channels of the embedding; 0: hidden_size
    double norm_eps = 1e-6;
    double initializer_range = 0.02;
    bool tie_word_embeddings = false;
    RopeConfig rope;
    safetensors::DType dtype = safetensors::DType::kF32;  // of the checkpoint's tensors
    std::int64_t bos_token_id = -1;                       // -1: none
    std::vector<std::int64_t> eos_token_ids;              // empty: none

    std::int64_t embedding_size() const { return word_embed_proj_dim > 0 ? word_embed_proj_dim : hidden_size; }

    // Rotations per position of each pair of channels, [head_dim / 2], as transformers computes them for a sequence of
    // `length` tokens (which matters to RopeKind::kDynamic only).
    std::vector<float> rope_frequencies(std::int64_t length = 0) const;

    // The most tokens of a sequence: max_position_embeddings, or no limit where rotary scaling follows the length; no
    // more than sliding_window, so that each token sees all before it.
    std::int64_t length_max() const;
    // The key of config.json that sets that limit.
    std::string_view length_max_key() const;
    // Whether a sequence's rotation depends on how long it is.
    bool rotation_depends_on(std::int64_t length) const {
        return rope.kind == RopeKind::kDynamic && length > max_position_embeddings;
    }
};

// Reads Llama, Mistral, Qwen2, Qwen3 and OPT, in both dialects: version 4's rope_theta, rope_scaling, torch_dtype and
// version 5's rope_parameters, dtype. kInvalidArgument, naming the key: an architecture that is not built, a missing or
// wrong value, or a key that would change the mathematics. Keys known to be harmless and keys that begin with "_" are
// ignored.
Result<ModelConfig> parse_config(std::string_view json_text);
// The same of the text of a file, by any name, which the errors' messages begin with.
Result<ModelConfig> parse_config(std::string_view json_text, const std::filesystem::path& file);
// The same of a model directory's config.json.
Result<ModelConfig> load_config(const std::filesystem::path& model_directory);
// The tokens that end a generated text: those of the directory's generation_config.json, where chat models keep the end
// of a turn, or those of config.json where there is no such file, as transformers has them. kInvalidArgument names the
// file: it cannot be read, or one of them is outside the vocabulary.
Result<std::vector<std::int64_t>> load_eos_token_ids(const std::filesystem::path& model_directory,
                                                     const ModelConfig& config);

}  // namespace atl::model_config
