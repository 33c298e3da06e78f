#include "services/aggregation/settings.h"

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/service/settings_reader.h"

namespace atl::aggregation {

Settings read_settings(service::SettingsReader& reader) {
    Settings settings;
    settings.store_url = reader.required_address("store_url", "the store, through the gateway");
    settings.dispatch_url = reader.required_address("dispatch_url", "dispatch, through the gateway");
    settings.token_file = reader.required_text(
        "token_file", "file of the token that both are shown (role operator); read anew each time");
    settings.workers =
        reader.integer("workers", settings.workers, 1, 64,
                       "threads that aggregate; each holds a part of the model and up to 64 MiB that it reads ahead");
    settings.part_bytes =
        reader.integer("part_bytes", settings.part_bytes, 4096, 16 << 20, "bytes of a part of the new model");
    settings.lease_s = reader.integer("lease_s", settings.lease_s, 1, 3600,
                                      "seconds after which another worker takes over the part of one that has died");
    settings.topic_prefix = reader.text("topic_prefix", "", "none", "prefix of the Kafka topics, for tests");
    return settings;
}

Result<Settings> parse_settings(const json::Json& own) {
    service::SettingsReader reader(own, "aggregation");
    Settings settings = read_settings(reader);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

Result<std::string> read_token(const Settings& settings) {
    const auto read = read_file(settings.token_file);
    if (!read.ok()) return unavailable("aggregation.token_file: " + describe(read.error()));
    return std::string(trim(*read));
}

}  // namespace atl::aggregation
