#include "services/aggregation/settings.h"

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/service/names.h"

namespace atl::aggregation {

Result<Settings> parse_settings(const json::Json& own) {
    json::ObjectReader reader(own, "aggregation");
    Settings settings;
    settings.store_url = service::required_web_address(reader, "store_url");
    settings.dispatch_url = service::required_web_address(reader, "dispatch_url");
    settings.token_file = reader.required_string("token_file");
    settings.workers = reader.integer_or("workers", settings.workers, 1, 64);
    settings.part_bytes = reader.integer_or("part_bytes", settings.part_bytes, 4096, 16 << 20);
    settings.lease_s = reader.integer_or("lease_s", settings.lease_s, 1, 3600);
    settings.topic_prefix = reader.string_or("topic_prefix", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

Result<std::string> read_token(const Settings& settings) {
    const auto read = read_file(settings.token_file);
    if (!read.ok()) return unavailable("aggregation.token_file: " + describe(read.error()));
    return std::string(trim(*read));
}

}  // namespace atl::aggregation
