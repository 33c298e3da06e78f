#include "services/registry/settings.h"

#include "shared/service/settings_reader.h"

namespace atl::registry {

Settings read_settings(service::SettingsReader& reader) {
    return {.topic_prefix = reader.topic_prefix()};
}

Result<Settings> parse_settings(const json::Json& own) {
    return service::read_object(own, "registry", read_settings);
}

}  // namespace atl::registry
