#include "services/store/work/scrub.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>

#include "services/store/db/retention.h"
#include "services/store/metrics.h"
#include "shared/base/backoff.h"
#include "shared/log/log.h"

namespace atl::store {
namespace {

constexpr unsigned kDirectories = 65536;

std::string directory_name(unsigned number) {
    char name[8];
    std::snprintf(name, sizeof name, "%02x/%02x", (number >> 8) & 255U, number & 255U);
    return name;
}

// The directory after that which was looked through last.
unsigned next_directory(pg::Pool& pool) {
    auto connection = pool.acquire();
    const auto last = connection.ok() ? last_scrubbed(**connection) : Result<std::string>(connection.error());
    unsigned first = 0;
    unsigned second = 0;
    if (!last.ok() || std::sscanf(last->c_str(), "%2x/%2x", &first, &second) != 2) return 0;
    return (first * 256 + second + 1) % kDirectories;
}

Status keep_place(pg::Pool& pool, const std::string& directory) {
    ATOLL_TRY(auto connection, pool.acquire());
    return set_last_scrubbed(*connection, directory);
}

// False when it is to stop.
bool scrub_directory(pg::Pool& pool, BlobStore& blobs, const std::string& directory, std::chrono::milliseconds pace,
                     prometheus::Counter& looked_at, const std::stop_token& stop) {
    const auto names = blobs.older_than(directory, std::chrono::seconds(0));
    for (const std::string& sha256 : names) {
        if (const Status status = scrub_blob(pool, blobs, sha256); !status.ok())
            spdlog::warn("looking at blob {}: {}", sha256, describe(status.error()));
        looked_at.Increment();
        if (!wait_unless_stopped(stop, pace / static_cast<std::int64_t>(names.size()))) return false;
    }
    if (names.empty()) return wait_unless_stopped(stop, pace);
    if (const Status kept = keep_place(pool, directory); !kept.ok())
        spdlog::warn("noting how far blobs were looked at: {}", describe(kept.error()));
    return true;
}

}  // namespace

Status scrub_blob(pg::Pool& pool, BlobStore& blobs, const std::string& sha256) {
    const bool was_damaged = blobs.is_damaged(sha256);
    const auto intact = blobs.is_intact(sha256);
    if (!intact.ok() && intact.error().code == ErrorCode::kNotFound) return {};
    ATOLL_RETURN_IF_ERROR(intact);
    if (*intact && !was_damaged) return {};
    ATOLL_TRY(auto connection, pool.acquire());
    if (*intact) return remove_damaged(*connection, sha256);
    ATOLL_TRY(const auto versions, add_damaged(*connection, sha256));
    std::string hit = versions.empty() ? "no version" : "";
    for (const std::string& version : versions) hit += (hit.empty() ? "" : ", ") + version;
    spdlog::error("blob {} is damaged, {} needs it: upload it again", sha256, hit);
    return {};
}

Status recall_damage(pg::Pool& pool, BlobStore& blobs) {
    std::vector<std::string> damaged;
    {
        ATOLL_TRY(auto connection, pool.acquire());
        ATOLL_TRY(damaged, damaged_blobs(*connection));
    }
    for (const std::string& sha256 : damaged) {
        blobs.mark_damaged(sha256);
        const auto intact = blobs.is_intact(sha256);  // stored again, but killed before the list was changed
        const bool is_gone = !intact.ok() && intact.error().code == ErrorCode::kNotFound;
        if (!is_gone && !(intact.ok() && *intact)) continue;
        ATOLL_TRY(auto connection, pool.acquire());
        ATOLL_RETURN_IF_ERROR(remove_damaged(*connection, sha256));
    }
    return {};
}

Scrubber::Scrubber(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds cycle, metrics::Registry& metrics) {
    if (cycle.count() == 0) return;
    auto& damaged = metrics.gauge(kMetrics["atoll_store_blobs_damaged"]);
    auto& looked_at = metrics.counter(kMetrics["atoll_store_blobs_scrubbed_total"]);
    thread_ = std::jthread([&pool, &blobs, &looked_at, &damaged, cycle](const std::stop_token& stop) {
        const auto pace = std::chrono::duration_cast<std::chrono::milliseconds>(cycle) / kDirectories;
        if (!wait_unless_stopped(stop, pace)) return;
        std::optional<unsigned> directory;
        while (!stop.stop_requested()) {
            try {
                directory = directory ? (*directory + 1) % kDirectories : next_directory(pool);
                if (!scrub_directory(pool, blobs, directory_name(*directory), pace, looked_at, stop)) return;
                damaged.Set(static_cast<double>(blobs.damaged_count()));
            } catch (const std::exception& exception) {
                spdlog::error("looking at blobs: {}", exception.what());
                (void)wait_unless_stopped(stop, std::max(pace, std::chrono::milliseconds(1000)));
            }
        }
    });
}

}  // namespace atl::store
