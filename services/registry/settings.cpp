#include "services/registry/settings.h"

#include "shared/json/json.h"

namespace atl::registry {

Result<Settings> parse_settings(const json::Json& own) {
    json::ObjectReader reader(own, "registry");
    Settings settings;
    settings.topic_prefix = reader.string_or("topic_prefix", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

}  // namespace atl::registry
