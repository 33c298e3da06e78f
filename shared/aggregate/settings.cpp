#include "shared/aggregate/settings.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "shared/adapter/adapter.h"
#include "shared/base/file.h"

namespace atl::aggregate {
namespace {

using json::Json;

// Notes on a model, and what training alone looks at.
constexpr std::array<std::string_view, 22> kModelNotes = {"dtype",
                                                          "torch_dtype",
                                                          "_name_or_path",
                                                          "transformers_version",
                                                          "use_cache",
                                                          "auto_map",
                                                          "initializer_range",
                                                          "attention_dropout",
                                                          "hidden_dropout",
                                                          "dropout",
                                                          "embd_pdrop",
                                                          "resid_pdrop",
                                                          "attn_pdrop",
                                                          "layerdrop",
                                                          "pretraining_tp",
                                                          "bos_token_id",
                                                          "eos_token_id",
                                                          "pad_token_id",
                                                          "_attn_implementation",
                                                          "init_std",
                                                          "torchscript",
                                                          "max_position_embeddings"};

constexpr const char* kContext = "max_position_embeddings";

// Where one model names these and the other does not, they are taken to differ.
constexpr std::array<std::string_view, 18> kModelSettings = {"model_type",
                                                             "hidden_act",
                                                             "activation_function",
                                                             "num_attention_heads",
                                                             "num_key_value_heads",
                                                             "head_dim",
                                                             "rms_norm_eps",
                                                             "layer_norm_eps",
                                                             "rope_theta",
                                                             "rope_scaling",
                                                             "sliding_window",
                                                             "quantization_config",
                                                             "tie_word_embeddings",
                                                             "partial_rotary_factor",
                                                             "rotary_pct",
                                                             "attention_bias",
                                                             "mlp_bias",
                                                             "logit_scale"};
constexpr std::array<std::string_view, 2> kModelSettingEnds = {"_multiplier", "_scaling"};  // of names of the same kind

constexpr std::array<std::string_view, 14> kAdapterNotes = {"auto_mapping",      "base_model_name_or_path",
                                                            "revision",          "task_type",
                                                            "inference_mode",    "peft_version",
                                                            "lora_dropout",      "eva_config",
                                                            "loftq_config",      "corda_config",
                                                            "megatron_core",     "runtime_config",
                                                            "init_lora_weights", "qalora_group_size"};

template <class Names>
bool holds(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_model_setting(std::string_view name) {
    return holds(kModelSettings, name) || std::any_of(kModelSettingEnds.begin(), kModelSettingEnds.end(),
                                                      [&](std::string_view end) { return name.ends_with(end); });
}

bool is_unset(const Json& value) {
    return value.is_null() || value == Json(false) || value == Json("none") ||
           ((value.is_object() || value.is_array()) && value.empty());
}

void set_if_absent(Json& object, const char* key, const Json& value) {
    if (is_unset(object.value(key, Json()))) object[key] = value;
}

// One form for what versions of transformers write in several.
Json with_defaults(Json model) {
    if (const Json rope = model.value("rope_parameters", Json()); rope.is_object()) {
        Json scaling = rope;
        scaling.erase("rope_theta");
        if (rope.contains("rope_theta")) set_if_absent(model, "rope_theta", rope["rope_theta"]);
        set_if_absent(model, "rope_scaling", scaling);
        model.erase("rope_parameters");
    }
    if (const Json scaling = model.value("rope_scaling", Json()); scaling.is_object()) {
        const Json type = scaling.value("rope_type", scaling.value("type", Json()));
        if (type == "default") model["rope_scaling"] = nullptr;
    }
    const Json heads = model.value("num_attention_heads", Json());
    const Json width = model.value("hidden_size", Json());
    set_if_absent(model, "num_key_value_heads", heads);
    if (heads.is_number_integer() && width.is_number_integer() && heads > 0)
        set_if_absent(model, "head_dim", width.get<std::int64_t>() / heads.get<std::int64_t>());
    return model;
}

// Whether the model's context decides how it turns positions, and is not only a note on how long texts may be.
bool context_counts(const Json& model) {
    const Json scaling = model.value("rope_scaling", Json());
    if (!scaling.is_object()) return false;
    const Json type = scaling.value("rope_type", scaling.value("type", Json()));
    return type == "dynamic" || type == "longrope" ||
           (type == "yarn" && is_unset(scaling.value("original_max_position_embeddings", Json())));
}

constexpr int kPeftDefault = 8;

Json with_adapter_defaults(Json adapter) {
    set_if_absent(adapter, "r", kPeftDefault);
    set_if_absent(adapter, "lora_alpha", kPeftDefault);
    if (Json& targets = adapter["target_modules"]; targets.is_array()) std::sort(targets.begin(), targets.end());
    return adapter;
}

template <class Notes, class May>
std::string first_difference(const Json& a, const Json& b, const Notes& notes, May&& may_be_absent) {
    std::set<std::string> keys;
    for (const Json* object : {&a, &b})
        for (const auto& [key, value] : object->items()) keys.insert(key);
    for (const std::string& key : keys) {
        const Json left = a.value(key, Json());
        const Json right = b.value(key, Json());
        if (holds(notes, key) || left == right || (is_unset(left) && is_unset(right))) continue;
        if ((left.is_null() || right.is_null()) && may_be_absent(key)) continue;
        return key;
    }
    return {};
}

// The object in a file; null: none.
Result<Json> read_settings(const std::filesystem::path& path) {
    const auto text = read_file(path);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) return Json();
    if (!text.ok()) return text.error();
    const auto object = json::parse(*text);
    if (!object.ok()) return invalid_argument(path.string(), path.string() + ": " + object.error().message);
    return object->is_object() ? *object : Json();
}

std::string shown(const Json& value) {
    return value.is_null() ? "not set" : value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// What may differ where a strategy takes products.
constexpr std::array kScaleKeys = {"r", "lora_alpha", "use_rslora", "rank_pattern"};

// What makes an adapter another thing than B A times one number for all its matrices.
constexpr std::array<std::string_view, 6> kNotOfProducts = {"alpha_pattern", "use_dora",  "use_bdlora",
                                                            "use_qalora",    "lora_bias", "modules_to_save"};

}  // namespace

std::string differing_model_setting(const Json& a, const Json& b) {
    const Json left = with_defaults(a);
    const Json right = with_defaults(b);
    const std::string key =
        first_difference(left, right, kModelNotes, [](const std::string& name) { return !is_model_setting(name); });
    const auto differs = [&](const char* name) { return a.value(name, Json()) != b.value(name, Json()); };
    if (key.empty() && (context_counts(left) || context_counts(right)) && differs(kContext)) return kContext;
    if (key != "head_dim" || differs("head_dim")) return key;
    return differs("hidden_size") ? "hidden_size" : "num_attention_heads";  // neither names what follows from these
}

std::string differing_adapter_setting(const Json& a, const Json& b) {
    return first_difference(with_adapter_defaults(a), with_adapter_defaults(b), kAdapterNotes,
                            [](const std::string&) { return false; });
}

namespace {

Json without_scale(Json settings) {
    for (const char* key : kScaleKeys) settings.erase(key);
    return settings;
}

// Whether adapters whose settings differ are some that the strategy product takes.
bool are_of_products(const Json& a, const Json& b) {
    return differing_adapter_setting(without_scale(a), without_scale(b)).empty() && parse_lora_scale(a).ok() &&
           parse_lora_scale(b).ok();
}

}  // namespace

Status check_settings(const std::vector<std::filesystem::path>& directories, LoraScales scales) {
    for (const char* name : {"config.json", "adapter_config.json"}) {
        const bool is_adapter = std::string_view(name) == "adapter_config.json";
        const auto differing = is_adapter ? differing_adapter_setting : differing_model_setting;
        const auto complete = is_adapter ? with_adapter_defaults : with_defaults;
        Json first;
        for (const auto& directory : directories) {
            ATOLL_TRY(Json settings, read_settings(directory / name));
            if (is_adapter && scales == LoraScales::kMayDiffer && settings.is_object())
                settings = without_scale(std::move(settings));
            if (&directory == &directories.front()) first = settings;
            if (first.is_null() || settings.is_null()) continue;
            const std::string key = differing(first, settings);
            if (key.empty()) continue;
            return invalid_argument(
                key, (directory / name).string() + ": " + key + " is " + shown(complete(settings).value(key, Json())) +
                         ", but " + shown(complete(first).value(key, Json())) + " in " + directories.front().string() +
                         "; choose " + (is_adapter ? "adapters" : "models") + " with the same " + key +
                         ", others cannot be averaged" +
                         (is_adapter && are_of_products(first, settings)
                              ? ", but `--strategy product` takes adapters whose ranks and scales differ"
                              : ""));
        }
    }
    return {};
}

Result<LoraScale> parse_lora_scale(const Json& config) {
    json::ObjectReader reader(config);
    LoraScale scale;
    reader.one_of("peft_type", {"LORA"}, "LORA");
    scale.alpha = reader.number_or("lora_alpha", kPeftDefault, 1e-9, 1e9);
    scale.is_rank_stabilized = reader.boolean_or("use_rslora", false);
    for (const auto& key : kNotOfProducts)
        if (!is_unset(reader.any_or_null(key.data()))) reader.fail(key.data(), "is not built for products of adapters");
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return scale;
}

Result<LoraScale> read_lora_scale(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / adapter::kConfigFile;
    ATOLL_TRY(const Json config, read_settings(path));
    if (config.is_null())
        return invalid_argument(path.string(), directory.string() + " has no " + adapter::kConfigFile +
                                                   ": product takes LoRA adapters, as peft saves them");
    auto scale = parse_lora_scale(config);
    if (!scale.ok()) return invalid_argument(path.string(), path.string() + ": " + describe(scale.error()));
    return scale;
}

}  // namespace atl::aggregate
