#include "services/dispatch/domain/training_settings.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

namespace atl::dispatch {
namespace {

using json::Json;

enum class Type { kInteger, kNumber, kBoolean, kString, kChoice };

struct Key {
    std::string_view name;
    Type type;
    double min = 0;
    double max = 0;
    std::vector<std::string_view> choices = {};
};

constexpr double kHuge = 1e15;

// The keys of run.json that a job may set. Paths (model, data, out, val_data, offload_dir), resuming and the device's
// own matters are dispatch's, so they are not in the table and are refused as unknown.
const std::vector<Key>& keys() {
    static const std::vector<Key> table = {
        {"steps", Type::kInteger, 1, kHuge},
        {"epochs", Type::kNumber, 0, 1e6},
        {"global_batch_size", Type::kInteger, 1, 1e9},
        {"batch_size", Type::kInteger, 1, 1e9},
        {"grad_accum", Type::kInteger, 1, 1e9},
        {"lr", Type::kNumber, 0, 1e6},
        {"schedule", Type::kChoice, 0, 0, {"constant", "linear", "cosine"}},
        {"warmup_steps", Type::kInteger, 0, kHuge},
        {"optimizer", Type::kChoice, 0, 0, {"adamw", "sgd"}},
        {"beta1", Type::kNumber, 0, 1},
        {"beta2", Type::kNumber, 0, 1},
        {"eps", Type::kNumber, 0, 1},
        {"weight_decay", Type::kNumber, 0, 1e6},
        {"no_decay_norms", Type::kBoolean},
        {"momentum", Type::kNumber, 0, 1},
        {"max_grad_norm", Type::kNumber, 0, 1e9},
        {"precision", Type::kChoice, 0, 0, {"fp32", "bf16", "fp16", "fp8"}},
        {"loss_scale", Type::kNumber, 0, 1e36},
        {"moments_dtype", Type::kChoice, 0, 0, {"fp32", "bf16"}},
        {"sharding",
         Type::kChoice,
         0,
         0,
         {"none", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_zero2"}},
        {"shard_group", Type::kInteger, 1, 1e6},
        {"tp", Type::kInteger, 1, 1e6},
        {"pp", Type::kInteger, 1, 1e6},
        {"offload_optimizer", Type::kChoice, 0, 0, {"none", "cpu", "nvme"}},
        {"offload_params", Type::kChoice, 0, 0, {"none", "cpu", "nvme"}},
        {"bucket_bytes", Type::kInteger, 1, kHuge},
        {"threads", Type::kInteger, 1, 4096},
        {"activation_checkpointing", Type::kChoice, 0, 0, {"none", "selective", "full"}},
        {"lora_rank", Type::kInteger, 0, 1e6},
        {"lora_alpha", Type::kNumber, 0, 1e6},
        {"lora_dropout", Type::kNumber, 0, 1},
        {"lora_targets", Type::kString},
        {"quantize", Type::kChoice, 0, 0, {"none", "int8", "nf4"}},
        {"train_samples", Type::kInteger, 1, kHuge},
        {"val_samples", Type::kInteger, 1, kHuge},
        {"shuffle", Type::kChoice, 0, 0, {"on", "off"}},
        {"seed", Type::kInteger, 0, kHuge},
        {"deterministic", Type::kBoolean},
        {"device", Type::kChoice, 0, 0, {"cpu", "cuda", "hip"}},
        {"eval_every", Type::kInteger, 1, kHuge},
        {"save_every", Type::kInteger, 1, kHuge},
        {"save_dtype", Type::kChoice, 0, 0, {"fp32", "bf16", "fp16"}},
        {"time_limit", Type::kNumber, 1e-6, kHuge},
    };
    return table;
}

std::string list_of(const std::vector<std::string_view>& choices) {
    std::string text;
    for (const auto choice : choices) text += (text.empty() ? "" : ", ") + std::string(choice);
    return text;
}

std::string number_text(double number) {
    std::string text(32, '\0');
    text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%g", number)));
    return text;
}

Status check_value(const Key& key, const Json& value, const std::string& field) {
    switch (key.type) {
        case Type::kInteger:
        case Type::kNumber: {
            const bool right_type = key.type == Type::kInteger ? value.is_number_integer() : value.is_number();
            if (!right_type)
                return invalid_argument(field, key.type == Type::kInteger ? "must be an integer" : "must be a number");
            const double number = value.get<double>();
            if (number < key.min || number > key.max)
                return invalid_argument(field, "must be from " + number_text(key.min) + " to " + number_text(key.max));
            return {};
        }
        case Type::kBoolean:
            return value.is_boolean() ? Status() : invalid_argument(field, "must be true or false");
        case Type::kString:
            return value.is_string() ? Status() : invalid_argument(field, "must be a string");
        case Type::kChoice:
            if (value.is_string() &&
                std::count(key.choices.begin(), key.choices.end(), value.get_ref<const std::string&>()) > 0)
                return {};
            return invalid_argument(field, "must be one of " + list_of(key.choices));
    }
    return {};
}

}  // namespace

Status check_training_settings(const Json& settings, const std::string& path) {
    if (settings.is_null()) return {};
    if (!settings.is_object()) return invalid_argument(path, "must be an object");
    for (const auto& [name, value] : settings.items()) {
        const std::string field = path + "." + name;
        const auto key = std::find_if(keys().begin(), keys().end(), [&](const Key& k) { return k.name == name; });
        if (key == keys().end()) return invalid_argument(field, "is not a training setting of a job");
        ATOLL_RETURN_IF_ERROR(check_value(*key, value, field));
    }
    return {};
}

Json merge_training_settings(Json base, const Json& overrides) {
    if (base.is_null()) base = Json::object();
    if (overrides.is_object()) base.update(overrides);
    return base;
}

}  // namespace atl::dispatch
