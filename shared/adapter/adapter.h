#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/adapter/module_pattern.h"
#include "shared/base/result.h"
#include "shared/json/json.h"
#include "shared/model_config/tensors.h"
#include "shared/run_settings/run_settings.h"

// Low-rank adapters (Hu et al., arXiv:2106.09685) as the peft library has them: a linear y = W x becomes
// y = W x + alpha / rank · B (A dropout(x)) (or alpha / √rank: rsLoRA, arXiv:2312.03732), where only A [rank, in] and B
// [out, rank] are trained. What the trainer, the store and dispatch know of them without a model's weights.
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

// A number of the modules that a pattern names: one entry of peft's rank_pattern or alpha_pattern.
struct PatternValue {
    std::string key;        // as it stands in the file
    ModulePattern pattern;  // matches the module's last parts
    double value = 0;
    bool operator==(const PatternValue&) const = default;
};

// What peft's files may say of an adapter and our flags do not. A training that goes on from one keeps it.
struct PeftSettings {
    bool is_rank_stabilized = false;              // use_rslora: B A counts alpha / √rank times
    std::optional<ModulePattern> target_pattern;  // target_modules as a regular expression, in place of `targets`
    std::vector<std::int64_t> layers;             // layers_to_transform, ascending; empty: all
    std::vector<std::string> layer_lists;         // layers_pattern: what stands before a layer's number
    std::vector<PatternValue> ranks, alphas;      // rank_pattern and alpha_pattern, by key
    bool operator==(const PeftSettings&) const = default;
};

struct LoraOptions {
    std::int64_t rank = 0;
    double alpha = 0;
    double dropout = 0;                // in [0, 1)
    std::vector<std::string> targets;  // "q_proj", "layers.0.mlp.up_proj"; or "all-linear": all but lm_head; sorted
    bool freeze_a = false;             // only B is trained; a run's own, as dropout is, and in no file
    PeftSettings peft = {};
    bool is_of_file = false;  // then, as in peft, a target may be no linear of the model as long as another one is

    // Whether a linear gets an adapter; `module` is its full name, "model.layers.0.mlp.up_proj". A
    // target names it whole or by its last parts.
    bool covers(std::string_view module) const;
    // Of a linear that has an adapter; scale_of() is what its B A is multiplied with.
    std::int64_t rank_of(std::string_view module) const;
    float scale_of(std::string_view module) const;
};

// Whether the target names the module whole or by its last parts.
bool answers_to(std::string_view module, std::string_view target);
// kInvalidArgument naming --lora-targets: one of the targets is none of these linears. Of an adapter from a file the
// key: nothing is a target, or two patterns say different things of one linear.
Status check_targets(const LoraOptions& options, const std::vector<std::string>& linears);

// What the --lora flags ask for. kInvalidArgument names the flag.
Result<LoraOptions> options_of(const run_settings::RunConfig& config);
// A flag may say again what the adapter is that a training goes on from; dropout and freeze_a are the run's own.
Status check_flags(const run_settings::RunConfig& config, const LoraOptions& adapter);

// An adapter_config.json. kInvalidArgument names the key: another kind of adapter than LoRA, or a key that would
// change the mathematics (use_dora, modules_to_save, bias, …) or is not known to be harmless.
Result<LoraOptions> parse_config(const json::Json& config);
std::string config_text(const LoraOptions& options, const std::string& base);
// The keys of `peft` and their values, where they say anything.
json::Json peft_keys(const PeftSettings& peft);
// The key in which two adapters differ so that their tensors do not add up ("r", "lora_alpha", "target_modules");
// empty: they do.
std::string differing_key(const LoraOptions& a, const LoraOptions& b);

// The tensors that an adapter has on a model of these tensors: A and B of each linear that it covers. kInvalidArgument:
// a target that is no linear of the model.
Result<std::vector<model_config::TensorSpec>> tensors_on(const LoraOptions& options,
                                                         std::span<const model_config::TensorSpec> model);

}  // namespace atl::adapter
