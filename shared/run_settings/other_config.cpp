#include "shared/run_settings/other_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shared/base/text.h"
#include "shared/run_settings/other_config_reader.h"
#include "shared/run_settings/other_words.h"
#include "shared/run_settings/run_settings.h"

namespace atl::run_settings {
namespace {

using json::Json;

template <std::size_t N>
std::size_t count_keys(const Json& object, const std::array<const char*, N>& keys) {
    return static_cast<std::size_t>(std::ranges::count_if(keys, [&](const char* key) { return object.contains(key); }));
}

constexpr std::array kOfDeepSpeed = {"zero_optimization", "train_micro_batch_size_per_gpu",
                                     "zero_allow_untested_optimizer"};
constexpr std::array kObjectsOfDeepSpeed = {"fp16", "bf16", "optimizer", "scheduler"};
constexpr std::array kOfAccelerate = {"compute_environment", "distributed_type", "mixed_precision", "num_machines",
                                      "machine_rank",        "fsdp_config",      "deepspeed_config"};
constexpr std::array kOfArguments = {"output_dir",
                                     "per_device_train_batch_size",
                                     "num_train_epochs",
                                     "learning_rate",
                                     "lr_scheduler_type",
                                     "gradient_accumulation_steps",
                                     "max_steps",
                                     "warmup_ratio",
                                     "optim",
                                     "adam_beta1",
                                     "save_steps"};
// Of a run.json: then one wrong key is a mistake, and not another program's file.
constexpr std::array kOfOurs = {"model", "data", "out", "lr", "steps", "epochs", "global_batch_size", "batch_size"};

std::optional<OtherTool> tool_of(const Json& object) {
    const auto is_object = [&](const char* key) { return object.contains(key) && object.at(key).is_object(); };
    if (count_keys(object, kOfOurs) > 0) return std::nullopt;
    if (count_keys(object, kOfDeepSpeed) > 0 || std::ranges::any_of(kObjectsOfDeepSpeed, is_object))
        return OtherTool::kDeepSpeed;
    if (count_keys(object, kOfAccelerate) > 1) return OtherTool::kAccelerate;
    if (count_keys(object, kOfArguments) > 1) return OtherTool::kTrainingArguments;
    if (object.contains("train_batch_size")) return OtherTool::kDeepSpeed;
    return std::nullopt;
}

bool says_nothing(const Json& value) {
    return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
}

}  // namespace

std::string_view describe(OtherTool tool) {
    switch (tool) {
        case OtherTool::kDeepSpeed:
            return "a DeepSpeed configuration";
        case OtherTool::kAccelerate:
            return "an accelerate configuration";
        case OtherTool::kTrainingArguments:
            break;
    }
    return "transformers' TrainingArguments";
}

std::optional<OtherConfig> recognize_config(std::string_view text) {
    auto object = json::parse(text);
    if (!object.ok()) object = parse_simple_yaml(text);
    if (!object.ok() || !object->is_object()) return std::nullopt;
    const auto tool = tool_of(*object);
    if (!tool) return std::nullopt;
    return OtherConfig{*tool, std::move(object).value()};
}

Json OtherReader::take(const std::string& key, std::string_view ours) {
    taken_.insert(key);
    if (!has(key)) return {};
    const Json& value = object_.at(key);
    if (value != "auto") return value;
    if (into_.fills_auto) return {};
    note(key, "is \"auto\", which another program fills in" +
                  (ours.empty() ? std::string() : ": set " + std::string(ours) + " yourself"));
    return {};
}

Json OtherReader::take_object(const std::string& key, std::string_view ours) {
    Json value = take(key, ours);
    if (value.is_object() || value.is_null()) return value;
    note(key, "must be an object; ignored");
    return {};
}

bool OtherReader::is_true(const std::string& key) {
    const Json value = take(key);
    if (!value.is_null() && !value.is_boolean()) note(key, "is neither true nor false, and is not understood");
    return value == true;
}

Json OtherReader::take_number(const std::string& key, std::string_view ours) {
    Json value = take(key, ours);
    if (value.is_number() || value.is_null()) return value;
    note_not_understood(key);
    return {};
}

void OtherReader::note_each(std::initializer_list<const char*> keys, const std::string& why) {
    for (const char* key : keys) {
        const Json value = take(key);
        if (value.is_null()) continue;
        if (says_nothing(value)) {
            into_.made.defaults.push_back(path_ + key);
        } else {
            note(key, why);
        }
    }
}

void OtherReader::rename(const std::string& key, const std::string& ours) {
    if (const Json value = take(key, ours); !value.is_null()) set(ours, value, key);
}

void OtherReader::finish(const Json& defaults) {
    for (const auto& [key, value] : object_.items()) {
        if (taken_.contains(key)) continue;
        const bool is_default = says_nothing(value) || (defaults.contains(key) && defaults.at(key) == value);
        if (is_default) {
            into_.made.defaults.push_back(path_ + key);
        } else {
            take(key);
            const OtherWord* word = find_other_word(key);
            if (value != "auto") note(key, word != nullptr ? our_word(*word) : "has no counterpart");
        }
    }
}

Json sharding_of_fsdp(const Json& strategy) {
    constexpr std::array<std::pair<std::string_view, Sharding>, 5> kStrategies = {
        {{"full_shard", Sharding::kFullShard},
         {"shard_grad_op", Sharding::kShardGradOp},
         {"no_shard", Sharding::kNone},
         {"hybrid_shard", Sharding::kHybridShard},
         {"hybrid_shard_zero2", Sharding::kHybridShardZero2}}};  // in the order of FSDP's numbers, from 1
    if (strategy.is_number_integer()) {
        const bool is_known = strategy >= 1 && strategy <= kStrategies.size();
        return is_known ? Json(to_string(kStrategies[strategy.get<std::size_t>() - 1].second)) : Json();
    }
    if (!strategy.is_string()) return {};
    std::string word = strategy.get<std::string>();
    std::ranges::transform(word, word.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    const auto found = std::ranges::find(kStrategies, word, [](const auto& one) { return one.first; });
    return found == kStrategies.end() ? Json() : Json(to_string(found->second));
}

Result<TranslatedConfig> translate_config(const OtherConfig& config) {
    Translation translation;
    switch (config.tool) {
        case OtherTool::kDeepSpeed:
            translate_deepspeed(config.content, "", translation);
            break;
        case OtherTool::kAccelerate:
            translate_accelerate(config.content, translation);
            break;
        case OtherTool::kTrainingArguments:
            translate_training_arguments(config.content, translation);
            break;
    }
    Json& settings = translation.made.settings;
    if (settings.value("warmup_steps", Json(0)) != 0)  // a job's default is off
        settings.emplace("warmup_from_zero", "on");
    for (const auto& [key, value] : settings.items()) {
        RunConfig ours;
        const Status status = assign_json(ours, {{key, value}}, kTrain);
        const std::string& origin = translation.origins[key];
        if (!status.ok())
            return invalid_argument(origin, (origin == key ? "" : "is " + key + " here: ") + status.error().message);
    }
    return std::move(translation.made);
}

}  // namespace atl::run_settings
