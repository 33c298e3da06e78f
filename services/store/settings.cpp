#include "services/store/settings.h"

#include "shared/service/settings_reader.h"

namespace atl::store {
namespace {

constexpr std::int64_t kBytesMax = std::int64_t{1} << 60;

}  // namespace

Settings read_settings(service::SettingsReader& reader) {
    Settings settings;
    settings.root = reader.required_text("root", "absolute path of the blob directory; only one process may use it");
    settings.accel_prefix =
        reader.text("accel_prefix", "", "none",
                    "nginx location that serves `root` (`/internal/blobs/`); if empty, the service sends blobs itself");
    settings.put_concurrency = reader.integer("put_concurrency", settings.put_concurrency, 1, 1024,
                                              "concurrent uploads; each uses up to 32 MiB of memory");
    settings.unused_blob_hours = reader.integer("unused_blob_hours", settings.unused_blob_hours, 0, 24 * 366,
                                                "hours before blobs that no version refers to are removed; 0: never");
    const std::int64_t free_bytes_min = reader.integer(
        "free_bytes_min", -1, 0, kBytesMax, "5 % of the file system, or 1 GiB if that is more, but never over 10 %",
        "free space in bytes below which uploads are refused; 0: no limit");
    if (free_bytes_min >= 0) settings.free_bytes_min = static_cast<std::uint64_t>(free_bytes_min);
    const std::int64_t unused_bytes_max =
        reader.integer("operator_unused_bytes_max", -1, 0, kBytesMax, "a quarter of the file system",
                       "bytes of uploaded blobs per operator that no version refers to yet");
    if (unused_bytes_max >= 0) settings.operator_unused_bytes_max = unused_bytes_max;
    settings.operator_manifest_bytes_max =
        reader.integer("operator_manifest_bytes_max", settings.operator_manifest_bytes_max, 0, kBytesMax,
                       "total size in bytes of the version manifests of one operator");
    settings.keep_updates_rounds = reader.integer("keep_updates_rounds", settings.keep_updates_rounds, 0, 1'000'000,
                                                  "number of a job's newest rounds whose updates are kept; 0: all");
    settings.scrub_days =
        reader.integer("scrub_days", settings.scrub_days, 0, 3660,
                       "number of days within which every blob is verified against its checksum; 0: never");
    settings.topic_prefix = reader.topic_prefix();
    return settings;
}

Result<Settings> parse_settings(const json::Json& own) {
    ATOLL_TRY(Settings settings, service::read_object(own, "store", read_settings));
    if (!settings.root.is_absolute()) return invalid_argument("store.root", "must be an absolute path");
    const std::string& prefix = settings.accel_prefix;
    if (!prefix.empty() && !(prefix.starts_with('/') && prefix.ends_with('/')))
        return invalid_argument("store.accel_prefix", "must begin and end with /");
    return settings;
}

}  // namespace atl::store
