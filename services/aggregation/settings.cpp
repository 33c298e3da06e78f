#include "services/aggregation/settings.h"

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/service/settings_reader.h"

namespace atl::aggregation {

Settings read_settings(service::SettingsReader& reader) {
    Settings settings;
    settings.store_url = reader.required_address("store_url", "URL of the store through the gateway");
    settings.dispatch_url = reader.required_address("dispatch_url", "URL of dispatch through the gateway");
    settings.token_file = reader.required_text(
        "token_file", "file with the operator token used for the store and dispatch; read again for each use");
    settings.workers =
        reader.integer("workers", settings.workers, 1, 64,
                       "aggregation threads; each holds one part of the model and up to 64 MiB of read-ahead");
    settings.part_bytes = reader.integer("part_bytes", settings.part_bytes, 4096, 16 << 20,
                                         "size in bytes of each part of the new model");
    settings.lease_s = reader.integer("lease_s", settings.lease_s, 1, 3600,
                                      "seconds before another worker takes over from one that died");
    settings.topic_prefix = reader.topic_prefix();
    return settings;
}

Result<Settings> parse_settings(const json::Json& own) {
    return service::read_object(own, "aggregation", read_settings);
}

Result<std::string> read_token(const Settings& settings) {
    const auto read = read_file(settings.token_file);
    if (!read.ok()) return unavailable("aggregation.token_file: " + describe(read.error()));
    return std::string(trim(*read));
}

}  // namespace atl::aggregation
