#include "services/dispatch/domain/model_context.h"

#include <string>

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kDefault = 2048;  // of configurations that do not say: the trainer's, as in transformers

// Null counts as absent, as with the trainer.
const Json* find_member(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

// transformers 5 writes rope_parameters, version 4 wrote rope_scaling and at first "type".
bool follows_length(const Json& config) {
    for (const char* object : {"rope_parameters", "rope_scaling"})
        if (const Json* rope = find_member(config, object); rope != nullptr && rope->is_object())
            for (const char* key : {"rope_type", "type"})
                if (const Json* kind = find_member(*rope, key); kind != nullptr) return *kind == "dynamic";
    return false;
}

}  // namespace

std::optional<std::int64_t> row_tokens_max(const Json& config) {
    if (!config.is_object() || follows_length(config)) return std::nullopt;
    const Json* positions = find_member(config, "max_position_embeddings");
    if (positions == nullptr) return kDefault;
    if (!positions->is_number_integer() || *positions < 1) return std::nullopt;
    return positions->get<std::int64_t>();
}

}  // namespace atl::dispatch
