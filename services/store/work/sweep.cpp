#include "services/store/work/sweep.h"

#include <condition_variable>
#include <exception>
#include <mutex>

#include "services/store/db/repository.h"
#include "shared/log/log.h"

namespace atl::store {
namespace {

constexpr std::chrono::hours kSweepInterval{1};
constexpr char kHexDigits[] = "0123456789abcdef";

// Those below one directory of the root, so that makers of versions are held up for a moment only.
Result<std::int64_t> sweep_directory(pg::Pool& pool, BlobStore& blobs, const std::string& first_digits,
                                     std::chrono::seconds age) {
    const std::vector<std::string> old = blobs.older_than(first_digits, age);
    if (old.empty()) return 0;
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
    ATOLL_TRY(const std::vector<std::string> unneeded, unreferenced_blobs(transaction, old));
    std::int64_t count = 0;
    for (const std::string& sha256 : unneeded) {
        const auto removed = blobs.remove_if_older(sha256, age);
        if (!removed.ok()) spdlog::warn("blob {} stays: {}", sha256, describe(removed.error()));
        count += removed.ok() && *removed ? 1 : 0;
    }
    ATOLL_RETURN_IF_ERROR(transaction.commit());
    return count;
}

// What goes wrong is logged: an hour later it is tried again.
std::int64_t sweep_once(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age) try {
    if (const Status forgotten = forget_uploads(pool); !forgotten.ok())
        spdlog::warn("forgetting uploads: {}", describe(forgotten.error()));
    if (age.count() == 0) return 0;
    const auto removed = sweep(pool, blobs, age);
    if (!removed.ok()) spdlog::warn("sweeping blobs: {}", describe(removed.error()));
    if (!removed.ok() || *removed == 0) return 0;
    spdlog::info("{} blobs that no version needs are gone", *removed);
    return *removed;
} catch (const std::exception& exception) {
    spdlog::warn("sweeping blobs: {}", exception.what());
    return 0;
}

}  // namespace

Status forget_uploads(pg::Pool& pool) {
    ATOLL_TRY(auto connection, pool.acquire());
    return delete_old_uploads(*connection);
}

Result<std::int64_t> sweep(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age) {
    std::int64_t count = 0;
    for (const char first : std::string_view(kHexDigits))
        for (const char second : std::string_view(kHexDigits)) {
            ATOLL_TRY(const std::int64_t removed, sweep_directory(pool, blobs, {first, second}, age));
            count += removed;
        }
    return count;
}

Sweeper::Sweeper(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, metrics::Registry& metrics,
                 std::chrono::seconds grace) {
    auto& swept = metrics.counter("atoll_store_blobs_swept_total", "Blobs removed because no version needs them");
    thread_ = std::jthread([&pool, &blobs, &swept, age, grace](const std::stop_token& stop) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any stopped;
        std::chrono::seconds wait = grace;
        while (!stopped.wait_for(lock, stop, wait, [&stop] { return stop.stop_requested(); })) {
            wait = kSweepInterval;
            swept.Increment(static_cast<double>(sweep_once(pool, blobs, age)));
        }
    });
}

}  // namespace atl::store
