#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/result.h"
#include "shared/model_config/model_config.h"

// Inside shared/model_config only.
namespace atl::model_config {

using Json = nlohmann::json;

// Reads one JSON object and keeps the first error.
class ConfigReader {
  public:
    ConfigReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

    bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
    bool is_null(const char* key) const { return object_.contains(key) && object_.at(key).is_null(); }
    const Json& at(const char* key) const { return object_.at(key); }

    std::int64_t integer(const char* key, std::optional<std::int64_t> fallback, std::int64_t min, std::int64_t max) {
        if (!has(key)) return missing(key, fallback);
        const Json& value = at(key);
        if (!value.is_number_integer()) return fail(key, "must be an integer"), min;
        const auto number = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX
                                ? std::numeric_limits<std::int64_t>::max()
                                : value.get<std::int64_t>();
        if (number < min || number > max) {
            fail(key, "must be between " + std::to_string(min) + " and " + std::to_string(max));
        }
        return number;
    }

    double positive(const char* key, std::optional<double> fallback) {
        if (!has(key)) return missing(key, fallback);
        const Json& value = at(key);
        const double number = value.is_number() ? value.get<double>() : 0.0;
        if (!(number > 0.0) || !std::isfinite(number)) return fail(key, "must be a number above 0"), 1.0;
        return number;
    }

    bool boolean(const char* key, bool fallback) {
        if (!has(key)) return fallback;
        if (!at(key).is_boolean()) return fail(key, "must be true or false"), fallback;
        return at(key).get<bool>();
    }

    std::string text(const char* key, std::string fallback) {
        if (!has(key)) return fallback;
        if (!at(key).is_string()) return fail(key, "must be a string"), fallback;
        return at(key).get<std::string>();
    }

    void fail(const char* key, std::string message) {
        if (status_.ok()) status_ = invalid_argument(path_ + key, std::move(message));
    }
    const Status& status() const { return status_; }

  private:
    template <class T>
    T missing(const char* key, std::optional<T> fallback) {
        if (!fallback) fail(key, "is missing");
        return fallback.value_or(T{1});
    }

    const Json& object_;
    std::string path_;
    Status status_;
};

// The first key that is neither one of `known` nor harmless to every model is an error: it may change the mathematics.
// `model` is for the message: "a Llama".
Status check_keys(const Json& object, std::span<const std::string_view> known, const char* model);

// Sizes that all architectures have, under the same names but for that of the feed-forward one. Returns the number of
// heads, at least 1.
std::int64_t parse_sizes(ConfigReader& reader, ModelConfig& config, const char* intermediate_size);

// What all architectures say in the same words: dtype or torch_dtype, bos_token_id, eos_token_id.
void parse_dtype_and_tokens(ConfigReader& reader, ModelConfig& config);

// An object that says it is a LlamaForCausalLM, a MistralForCausalLM, …
Result<ModelConfig> parse_llama(const Json& object);
Result<ModelConfig> parse_mistral(const Json& object);
Result<ModelConfig> parse_qwen2(const Json& object);
Result<ModelConfig> parse_qwen3(const Json& object);
Result<ModelConfig> parse_opt(const Json& object);

// rope_theta with rope_scaling, or rope_parameters; `config` has its sizes already.
Result<RopeConfig> parse_rope(ConfigReader& reader, const ModelConfig& config);

}  // namespace atl::model_config
