#include "services/store/settings.h"

#include "shared/json/json.h"

namespace atl::store {

Result<Settings> parse_settings(const json::Json& own) {
    json::ObjectReader reader(own, "store");
    Settings settings;
    settings.root = reader.required_string("root");
    settings.accel_prefix = reader.string_or("accel_prefix", "");
    settings.put_concurrency = reader.integer_or("put_concurrency", settings.put_concurrency, 1, 1024);
    settings.unused_blob_hours = reader.integer_or("unused_blob_hours", settings.unused_blob_hours, 0, 24 * 366);
    const std::int64_t free_bytes_min = reader.integer_or("free_bytes_min", -1, 0, std::int64_t{1} << 60);
    if (free_bytes_min >= 0) settings.free_bytes_min = static_cast<std::uint64_t>(free_bytes_min);
    const std::int64_t unused_bytes_max = reader.integer_or("operator_unused_bytes_max", -1, 0, std::int64_t{1} << 60);
    if (unused_bytes_max >= 0) settings.operator_unused_bytes_max = unused_bytes_max;
    settings.operator_manifest_bytes_max = reader.integer_or(
        "operator_manifest_bytes_max", settings.operator_manifest_bytes_max, 0, std::int64_t{1} << 60);
    settings.keep_updates_rounds = reader.integer_or("keep_updates_rounds", settings.keep_updates_rounds, 0, 1'000'000);
    settings.scrub_days = reader.integer_or("scrub_days", settings.scrub_days, 0, 3660);
    settings.topic_prefix = reader.string_or("topic_prefix", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!settings.root.is_absolute()) return invalid_argument("store.root", "must be an absolute path");
    const std::string& prefix = settings.accel_prefix;
    if (!prefix.empty() && !(prefix.starts_with('/') && prefix.ends_with('/')))
        return invalid_argument("store.accel_prefix", "must begin and end with /");
    return settings;
}

}  // namespace atl::store
