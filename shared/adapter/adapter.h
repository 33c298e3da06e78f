#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/json/json.h"
#include "shared/model_config/tensors.h"
#include "shared/run_settings/run_settings.h"

// Low-rank adapters (Hu et al., arXiv:2106.09685) as the peft library has them: a linear y = W x becomes
// y = W x + alpha / rank · B (A dropout(x)), where only A [rank, in] and B [out, rank] are trained. What the trainer,
// the store and dispatch know of them without a model's weights.
namespace atl::adapter {

// The files of an adapter directory. Its tensors are named "base_model.model." + the module + ".lora_A.weight" and
// ".lora_B.weight".
inline constexpr char kConfigFile[] = "adapter_config.json";
inline constexpr char kWeightsFile[] = "adapter_model.safetensors";
inline constexpr char kBaseName[] = "base_model_name_or_path";         // a key of the configuration
inline constexpr char kQuantizationKey[] = "atoll.base_quantization";  // of the weights' metadata: "nf4", "none"
inline constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

inline constexpr std::string_view kAllLinear = "all-linear";
inline constexpr std::string_view kHead = "lm_head";  // which peft's "all-linear" leaves out

struct LoraOptions {
    std::int64_t rank = 0;
    double alpha = 0;
    double dropout = 0;                // in [0, 1)
    std::vector<std::string> targets;  // "q_proj", "layers.0.mlp.up_proj"; or "all-linear": all but lm_head; sorted
    bool freeze_a = false;             // only B is trained; a run's own, as dropout is, and in no file

    float scale() const { return static_cast<float>(alpha / static_cast<double>(rank)); }
    // Whether a linear gets an adapter; `module` is its full name, "model.layers.0.mlp.up_proj". A
    // target names it whole or by its last parts.
    bool covers(std::string_view module) const;
};

// Whether the target names the module whole or by its last parts.
bool answers_to(std::string_view module, std::string_view target);
// kInvalidArgument naming --lora-targets: one of the targets is none of these linears.
Status check_targets(const LoraOptions& options, const std::vector<std::string>& linears);

// What the --lora flags ask for. kInvalidArgument names the flag.
Result<LoraOptions> options_of(const run_settings::RunConfig& config);
// A flag may say again what the adapter is that a training goes on from; dropout and freeze_a are the run's own.
Status check_flags(const run_settings::RunConfig& config, const LoraOptions& adapter);

// An adapter_config.json. kInvalidArgument names the key: another kind of adapter than plain LoRA, or a key that would
// change the mathematics (use_dora, rank_pattern, bias, …) or is not known to be harmless.
Result<LoraOptions> parse_config(const json::Json& config);
std::string config_text(const LoraOptions& options, const std::string& base);
// The key in which two adapters differ so that their tensors do not add up ("r", "lora_alpha", "target_modules");
// empty: they do.
std::string differing_key(const LoraOptions& a, const LoraOptions& b);

// The tensors that an adapter has on a model of these tensors: A and B of each linear that it covers. kInvalidArgument:
// a target that is no linear of the model.
Result<std::vector<model_config::TensorSpec>> tensors_on(const LoraOptions& options,
                                                         std::span<const model_config::TensorSpec> model);

}  // namespace atl::adapter
