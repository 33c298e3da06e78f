#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shared/adapter/adapter.h"
#include "shared/base/text.h"

namespace atl::adapter {
namespace {

constexpr std::int64_t kRankMax = 1 << 16;
constexpr std::int64_t kLayerMax = 1'000'000;
// A file's patterns are matched against each linear of a model, within a request of the store or dispatch.
constexpr std::size_t kPatternsMax = 1000;  // of a key
constexpr std::int64_t kPeftRank = 8;       // its default, of r and of lora_alpha

// What may be there in any case: it says nothing about the mathematics of a trained adapter.
constexpr std::array kHarmless = {
    "auto_mapping", kBaseName,      "revision",     "task_type",     "inference_mode",    "peft_version",
    "eva_config",   "loftq_config", "corda_config", "megatron_core", "qalora_group_size", "runtime_config",
};

// What changes the mathematics unless it is null, false, empty or "none".
constexpr std::array kMustBeUnset = {
    "alora_invocation_tokens",
    "arrow_config",
    "bias",
    "ensure_weight_tying",
    "exclude_modules",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "lora_ga_config",
    "megatron_config",
    "modules_to_save",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "velora_config",
};

bool says_nothing(const json::Json& value) {
    return value.is_null() || value == false || value == "none" || (value.is_structured() && value.empty());
}

void read_targets(json::ObjectReader& reader, LoraOptions& options) {
    const json::Json& value = reader.any_or_null("target_modules");
    if (value == kAllLinear) {
        options.targets = {std::string(kAllLinear)};
    } else if (value.is_string()) {
        auto pattern = ModulePattern::parse(value.get<std::string>());
        if (!pattern.ok()) return reader.fail("target_modules", pattern.error().message);
        options.peft.target_pattern = std::move(pattern).value();
    } else if (!value.is_array() || value.empty()) {
        reader.fail("target_modules", "must be a list of module names, a regular expression or \"all-linear\"");
    } else {
        for (const json::Json& target : value) {
            if (!target.is_string()) return reader.fail("target_modules", "must be a list of module names");
            options.targets.push_back(target.get<std::string>());
        }
        std::ranges::sort(options.targets);
    }
}

void read_layers(json::ObjectReader& reader, LoraOptions& options) {
    const json::Json& layers = reader.any_or_null("layers_to_transform");
    const bool is_one = layers.is_number_integer();
    if (!is_one && !layers.is_array() && !layers.is_null())
        return reader.fail("layers_to_transform", "must be a layer's number or a list of them");
    for (const json::Json& layer : is_one ? json::Json::array({layers}) : layers) {
        if (!layer.is_number_integer() || layer < 0 || layer > kLayerMax)
            return reader.fail("layers_to_transform", "must be layers' numbers, from 0");
        options.peft.layers.push_back(layer.get<std::int64_t>());
    }
    std::ranges::sort(options.peft.layers);
    const bool is_list = !options.targets.empty() && options.targets.front() != kAllLinear;
    if (!options.peft.layers.empty() && !is_list)
        reader.fail("layers_to_transform", "needs a list in target_modules, as in peft");
}

// peft makes a part of a regular expression of each. What is more than a name is refused: which number counts as the
// layer's would depend on how the expression is matched.
void read_layer_lists(json::ObjectReader& reader, LoraOptions& options) {
    const json::Json& lists = reader.any_or_null("layers_pattern");
    if (says_nothing(lists) || lists == "") return;
    if (reader.any_or_null("layers_to_transform").is_null())
        return reader.fail("layers_pattern", "means nothing without layers_to_transform");
    if (options.peft.layers.empty()) return;  // an empty list: all layers
    for (const json::Json& list : lists.is_array() ? lists : json::Json::array({lists})) {
        const std::string name = list.is_string() ? list.get<std::string>() : "";
        const bool is_plain = !name.empty() && std::ranges::all_of(name, [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
        });
        if (!is_plain)
            return reader.fail("layers_pattern", "must be names, \"layers\"; a regular expression is not built");
        options.peft.layer_lists.push_back(name);
        if (options.peft.layer_lists.size() > kPatternsMax)
            return reader.fail("layers_pattern", "has more than 1000 names");
    }
}

// As peft matches each key.
std::vector<PatternValue> read_values(json::ObjectReader& reader, const char* key, bool are_ranks) {
    std::vector<PatternValue> values;
    const json::Json& object = reader.object_or_null(key);
    if (!object.is_object()) return values;
    if (object.size() > kPatternsMax) return reader.fail(key, "has more than 1000 patterns"), values;
    for (const auto& [name, value] : object.items()) {
        auto pattern = ModulePattern::parse(name, ModulePattern::Extent::kLastParts);
        if (!pattern.ok()) return reader.fail(key, pattern.error().message), values;
        const bool is_right = are_ranks ? value.is_number_integer() && value >= 1 && value <= kRankMax
                                        : value.is_number() && value >= 0 && value <= 1e9;
        if (!is_right)
            return reader.fail(key, in_quotes(name) + " must be " +
                                        (are_ranks ? "a rank, from 1 to " + std::to_string(kRankMax)
                                                   : std::string("a number from 0 to 1e9"))),
                   values;
        values.push_back({name, std::move(pattern).value(), value.get<double>()});
    }
    return values;
}

// The first key with which the patterns so far take longer to match than a single one may; null: none.
const char* too_costly_key(const PeftSettings& peft) {
    double cost = peft.target_pattern ? peft.target_pattern->cost() : 0;
    for (const auto& [key, values] : {std::pair("rank_pattern", &peft.ranks), std::pair("alpha_pattern", &peft.alphas)})
        for (const PatternValue& one : *values) {
            cost += one.pattern.cost();
            if (cost > ModulePattern::kCostMax) return key;
        }
    return nullptr;
}

json::Json values_json(const std::vector<PatternValue>& values, bool are_ranks) {
    json::Json object = json::Json::object();
    for (const PatternValue& one : values)
        object[one.key] = are_ranks ? json::Json(static_cast<std::int64_t>(one.value)) : json::Json(one.value);
    return object;
}

json::Json targets_json(const LoraOptions& options) {
    if (options.peft.target_pattern) return options.peft.target_pattern->text();
    return options.targets.front() == kAllLinear ? json::Json(kAllLinear) : json::Json(options.targets);
}

}  // namespace

Result<LoraOptions> parse_config(const json::Json& config) {
    json::ObjectReader reader(config);
    reader.one_of("peft_type", {"LORA"}, "");
    LoraOptions options;
    options.is_of_file = true;
    options.rank = reader.integer_or("r", kPeftRank, 1, kRankMax);
    options.alpha = reader.number_or("lora_alpha", kPeftRank, 0, 1e9);
    options.dropout = reader.number_or("lora_dropout", 0, 0, 0.999999);
    options.peft.is_rank_stabilized = reader.boolean_or("use_rslora", false);
    read_targets(reader, options);
    read_layers(reader, options);
    read_layer_lists(reader, options);
    options.peft.ranks = read_values(reader, "rank_pattern", true);
    options.peft.alphas = read_values(reader, "alpha_pattern", false);
    if (const char* key = too_costly_key(options.peft); key != nullptr)
        reader.fail(key, "has more or longer patterns than can be matched; name the modules plainly");
    for (const char* key : kHarmless) reader.any_or_null(key);
    // Other ways to begin ("pissa", "olora", "corda", …) take what the adapter begins with out of the base, and peft
    // does so again whenever it loads one.
    const json::Json& began = reader.any_or_null("init_lora_weights");
    if (!began.is_null() && !began.is_boolean() && began != "gaussian" && began != "eva" && began != "orthogonal")
        reader.fail("init_lora_weights", "changes the base model in a way that is not built");
    for (const char* key : kMustBeUnset)
        if (!says_nothing(reader.any_or_null(key))) reader.fail(key, "is not built; only plain LoRA is");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return options;
}

json::Json peft_keys(const PeftSettings& peft) {
    json::Json keys = json::Json::object();
    if (peft.is_rank_stabilized) keys["use_rslora"] = true;
    if (peft.target_pattern) keys["target_modules"] = peft.target_pattern->text();
    if (!peft.layers.empty()) keys["layers_to_transform"] = peft.layers;
    if (!peft.layer_lists.empty()) keys["layers_pattern"] = peft.layer_lists;
    if (!peft.ranks.empty()) keys["rank_pattern"] = values_json(peft.ranks, true);
    if (!peft.alphas.empty()) keys["alpha_pattern"] = values_json(peft.alphas, false);
    return keys;
}

std::string config_text(const LoraOptions& options, const std::string& base) {
    nlohmann::ordered_json config = {
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
        {"target_modules", nlohmann::ordered_json(targets_json(options))},
        {"task_type", "CAUSAL_LM"},
        {"use_dora", false},
        {"use_rslora", false},
    };
    const json::Json more = peft_keys(options.peft);
    for (const auto& [key, value] : more.items()) config[key] = nlohmann::ordered_json(value);
    return config.dump(2) + "\n";
}

std::string differing_key(const LoraOptions& a, const LoraOptions& b) {
    if (a.rank != b.rank) return "r";
    if (a.alpha != b.alpha) return "lora_alpha";
    if (a.targets != b.targets || a.peft.target_pattern != b.peft.target_pattern) return "target_modules";
    if (a.peft.is_rank_stabilized != b.peft.is_rank_stabilized) return "use_rslora";
    if (a.peft.layers != b.peft.layers) return "layers_to_transform";
    if (a.peft.layer_lists != b.peft.layer_lists) return "layers_pattern";
    if (a.peft.ranks != b.peft.ranks) return "rank_pattern";
    return a.peft.alphas == b.peft.alphas ? "" : "alpha_pattern";
}

}  // namespace atl::adapter
