#include "services/store/settings.h"

#include "shared/service/settings_reader.h"

namespace atl::store {
namespace {

constexpr std::int64_t kBytesMax = std::int64_t{1} << 60;

}  // namespace

Settings read_settings(service::SettingsReader& reader) {
    Settings settings;
    settings.root = reader.required_text("root", "directory of the blobs, an absolute path; one process owns it");
    settings.accel_prefix = reader.text(
        "accel_prefix", "", "none",
        "location of the gateway that serves `root` (`/internal/blobs/`); without one the service sends blobs itself");
    settings.put_concurrency = reader.integer("put_concurrency", settings.put_concurrency, 1, 1024,
                                              "uploads at a time; each takes up to 32 MiB of memory");
    settings.unused_blob_hours =
        reader.integer("unused_blob_hours", settings.unused_blob_hours, 0, 24 * 366,
                       "hours after which blobs that no version names are removed; 0: they stay");
    const std::int64_t free_bytes_min =
        reader.integer("free_bytes_min", -1, 0, kBytesMax, "5 % of the file system, at least 1 GiB, at most a tenth",
                       "free space of the file system below which uploads are refused; 0: no limit");
    if (free_bytes_min >= 0) settings.free_bytes_min = static_cast<std::uint64_t>(free_bytes_min);
    const std::int64_t unused_bytes_max =
        reader.integer("operator_unused_bytes_max", -1, 0, kBytesMax, "a quarter of the file system",
                       "bytes of blobs that an operator may have uploaded and that no version names yet");
    if (unused_bytes_max >= 0) settings.operator_unused_bytes_max = unused_bytes_max;
    settings.operator_manifest_bytes_max =
        reader.integer("operator_manifest_bytes_max", settings.operator_manifest_bytes_max, 0, kBytesMax,
                       "bytes that the manifests of an operator's versions may take in the database");
    settings.keep_updates_rounds = reader.integer("keep_updates_rounds", settings.keep_updates_rounds, 0, 1'000'000,
                                                  "newest rounds of a job whose updates are kept; 0: all");
    settings.scrub_days = reader.integer("scrub_days", settings.scrub_days, 0, 3660,
                                         "days in which every blob is read and compared with its name; 0: never");
    settings.topic_prefix = reader.text("topic_prefix", "", "none", "prefix of the Kafka topics, for tests");
    return settings;
}

Result<Settings> parse_settings(const json::Json& own) {
    service::SettingsReader reader(own, "store");
    Settings settings = read_settings(reader);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!settings.root.is_absolute()) return invalid_argument("store.root", "must be an absolute path");
    const std::string& prefix = settings.accel_prefix;
    if (!prefix.empty() && !(prefix.starts_with('/') && prefix.ends_with('/')))
        return invalid_argument("store.accel_prefix", "must begin and end with /");
    return settings;
}

}  // namespace atl::store
