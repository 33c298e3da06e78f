#include "services/dispatch/domain/model_context.h"

#include <algorithm>

namespace atl::dispatch {
namespace {

using json::Json;

// Null counts as absent, as with the trainer.
const Json* find_member(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The trainer goes by the architecture or, without one, by the type.
bool is_of_type(const Json& config, const char* type, const char* architecture) {
    const Json* found = find_member(config, "architectures");
    if (found != nullptr && found->is_array() && !found->empty()) return found->front() == architecture;
    found = find_member(config, "model_type");
    return found != nullptr && *found == type;
}

bool is_mistral(const Json& config) {
    return is_of_type(config, "mistral", "MistralForCausalLM");
}

// Of configurations that do not say: the trainer's, as in transformers.
std::int64_t default_positions(const Json& config) {
    if (is_mistral(config)) return 131072;
    const bool is_qwen =
        is_of_type(config, "qwen2", "Qwen2ForCausalLM") || is_of_type(config, "qwen3", "Qwen3ForCausalLM");
    return is_qwen ? 32768 : 2048;
}

// The most tokens of which each sees all before it: of a Mistral, where there is a window.
std::optional<std::int64_t> window_tokens(const Json& config) {
    constexpr std::int64_t kDefault = 4096;  // where nothing is said; null is no window
    if (!is_mistral(config)) return std::nullopt;
    if (!config.contains("sliding_window")) return kDefault;
    const Json& window = config["sliding_window"];
    return window.is_number_integer() && window >= 1 ? std::optional(window.get<std::int64_t>()) : std::nullopt;
}

// transformers 5 writes rope_parameters, version 4 wrote rope_scaling and at first "type".
bool follows_length(const Json& config) {
    for (const char* object : {"rope_parameters", "rope_scaling"})
        if (const Json* rope = find_member(config, object); rope != nullptr && rope->is_object())
            for (const char* key : {"rope_type", "type"})
                if (const Json* kind = find_member(*rope, key); kind != nullptr) return *kind == "dynamic";
    return false;
}

std::optional<std::int64_t> position_tokens(const Json& config) {
    if (follows_length(config)) return std::nullopt;
    const Json* positions = find_member(config, "max_position_embeddings");
    if (positions == nullptr) return default_positions(config);
    if (!positions->is_number_integer() || *positions < 1) return std::nullopt;
    return positions->get<std::int64_t>();
}

}  // namespace

std::optional<std::int64_t> row_tokens_max(const Json& config) {
    if (!config.is_object()) return std::nullopt;
    const auto positions = position_tokens(config), window = window_tokens(config);
    if (positions && window) return std::min(*positions, *window);
    return positions ? positions : window;
}

}  // namespace atl::dispatch
