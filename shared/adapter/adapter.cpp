#include "shared/adapter/adapter.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::adapter {
namespace {

using model_config::TensorSpec;

constexpr std::int64_t kRankMax = 1 << 16;
constexpr std::string_view kWeight = ".weight";
constexpr const char* kDefaultTargets = "q_proj,v_proj";

std::vector<std::string> sorted_list(const std::string& text) {
    std::vector<std::string> parts = split_list(text);
    std::ranges::sort(parts);
    return parts;
}

// What may be there in any case: it says nothing about the mathematics of a trained adapter.
constexpr std::array kHarmless = {
    "auto_mapping", kBaseName,      "revision",     "task_type",     "inference_mode",    "peft_version",
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

// Says what the linears are called.
Status unknown_target(const std::vector<std::string>& linears, const std::string& target) {
    std::vector<std::string> names;
    std::string text;
    for (const std::string& module : linears) {
        const std::string name = module.substr(module.rfind('.') + 1);  // all of it, without a dot
        if (std::ranges::find(names, name) != names.end()) continue;
        names.push_back(name);
        text += (text.empty() ? "" : ", ") + name;
    }
    return invalid_argument("--lora-targets", "'" + target + "' is no linear of this model; those are " + text);
}

// Of a matrix that a linear multiplies with; empty: the tensor is none.
std::string_view linear_name(const TensorSpec& tensor) {
    const std::string_view name = tensor.name;
    if (tensor.shape.size() != 2 || !name.ends_with(kWeight)) return {};
    const std::string_view module = name.substr(0, name.size() - kWeight.size());
    const std::string_view last = module.substr(module.rfind('.') + 1);  // all of it, without a dot
    return last.starts_with("embed_") ? std::string_view() : module;
}

}  // namespace

bool LoraOptions::covers(std::string_view module) const {
    return std::ranges::any_of(targets, [&](const std::string& target) {
        return target == kAllLinear ? module != kHead : answers_to(module, target);
    });
}

bool answers_to(std::string_view module, std::string_view target) {
    if (!module.ends_with(target)) return false;
    return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

Status check_targets(const LoraOptions& options, const std::vector<std::string>& linears) {
    for (const std::string& target : options.targets) {
        const auto is_meant = [&](const std::string& module) { return answers_to(module, target); };
        if (target != kAllLinear && std::ranges::none_of(linears, is_meant)) return unknown_target(linears, target);
    }
    return {};
}

Result<LoraOptions> options_of(const run_settings::RunConfig& config) {
    LoraOptions options;
    options.rank = config.lora_rank;
    options.alpha = config.given.contains("lora-alpha") ? config.lora_alpha : static_cast<double>(config.lora_rank);
    options.dropout = config.lora_dropout;
    options.freeze_a = config.lora_freeze_a == run_settings::OnOff::kOn;
    options.targets = sorted_list(config.lora_targets.empty() ? kDefaultTargets : config.lora_targets);
    if (options.targets.empty()) return invalid_argument("--lora-targets", "names no linear");
    if (const auto twice = std::ranges::adjacent_find(options.targets); twice != options.targets.end())
        return invalid_argument("--lora-targets", "names '" + *twice + "' twice");
    const bool all = std::ranges::find(options.targets, "all-linear") != options.targets.end();
    if (all && options.targets.size() > 1) {
        return invalid_argument("--lora-targets", "'all-linear' stands alone (for lm_head too, name all the linears)");
    }
    return options;
}

Status check_flags(const run_settings::RunConfig& config, const LoraOptions& adapter) {
    const auto differs = [](const char* flag, const std::string& is) {
        return invalid_argument(flag, "the adapter to train further has " + is + "; leave the flag out");
    };
    if (config.lora_rank > 0 && config.lora_rank != adapter.rank) {
        return differs("--lora-rank", std::to_string(adapter.rank));
    }
    if (config.given.contains("lora-alpha") && config.lora_alpha != adapter.alpha) {
        return differs("--lora-alpha", number_text(adapter.alpha));
    }
    if (!config.lora_targets.empty() && sorted_list(config.lora_targets) != adapter.targets) {
        return differs("--lora-targets", "others");
    }
    return {};
}

Result<LoraOptions> parse_config(const json::Json& config) {
    json::ObjectReader reader(config);
    reader.one_of("peft_type", {"LORA"}, "");
    LoraOptions options;
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

std::string config_text(const LoraOptions& options, const std::string& base) {
    const nlohmann::ordered_json config = {
        {kBaseName, base},
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

std::string differing_key(const LoraOptions& a, const LoraOptions& b) {
    if (a.rank != b.rank) return "r";
    if (a.alpha != b.alpha) return "lora_alpha";
    return a.targets == b.targets ? "" : "target_modules";
}

Result<std::vector<TensorSpec>> tensors_on(const LoraOptions& options, std::span<const TensorSpec> model) {
    std::vector<std::string> linears;
    for (const TensorSpec& tensor : model)
        if (const auto name = linear_name(tensor); !name.empty()) linears.emplace_back(name);
    ATOLL_RETURN_IF_ERROR(check_targets(options, linears));
    std::vector<TensorSpec> tensors;
    for (const TensorSpec& tensor : model) {
        const std::string module(linear_name(tensor));
        if (module.empty() || !options.covers(module)) continue;
        const std::string prefix = std::string(kPrefix) + module;
        tensors.push_back({prefix + std::string(kA), {options.rank, tensor.shape[1]}});
        tensors.push_back({prefix + std::string(kB), {tensor.shape[0], options.rank}});
    }
    return tensors;
}

}  // namespace atl::adapter
