#include "services/registry/settings.h"

#include "shared/service/settings_reader.h"

namespace atl::registry {

Settings read_settings(service::SettingsReader& reader) {
    return {.topic_prefix = reader.text("topic_prefix", "", "none", "prefix of the Kafka topics, for tests")};
}

Result<Settings> parse_settings(const json::Json& own) {
    service::SettingsReader reader(own, "registry");
    Settings settings = read_settings(reader);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

}  // namespace atl::registry
