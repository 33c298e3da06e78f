#include "services/store/work/sweep.h"

#include <algorithm>
#include <exception>
#include <iterator>

#include "services/store/db/operator_quota.h"
#include "services/store/db/repository.h"
#include "services/store/db/retention.h"
#include "services/store/metrics.h"
#include "shared/base/backoff.h"
#include "shared/log/log.h"

namespace atl::store {
namespace {

constexpr std::chrono::hours kSweepInterval{1};
constexpr std::int64_t kPrunedAtOnce = 100;
constexpr std::int64_t kDryRunMax = 10'000;
constexpr char kHexDigits[] = "0123456789abcdef";

// Those below one directory of the root, so that makers of versions are held up for a moment only.
Result<BlobCount> sweep_directory(pg::Pool& pool, BlobStore& blobs, const std::string& first_digits,
                                  std::chrono::seconds age, bool dry_run) {
    const std::vector<std::string> old = blobs.older_than(first_digits, age);
    if (old.empty()) return BlobCount();
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
    ATOLL_TRY(const std::vector<std::string> unneeded, unreferenced_blobs(transaction, old));
    BlobCount swept;
    std::vector<std::string> gone;
    for (const std::string& sha256 : unneeded) {
        const auto size = blobs.blob_size(sha256);
        const auto removed = dry_run ? Result<bool>(true) : blobs.remove_if_older(sha256, age);
        if (!removed.ok()) spdlog::warn("blob {} stays: {}", sha256, describe(removed.error()));
        if (!removed.ok() || !*removed || !size.ok()) continue;
        ++swept.blobs;
        swept.bytes += *size;
        if (!dry_run) gone.push_back(sha256);
    }
    ATOLL_RETURN_IF_ERROR(forget_operator_blobs(transaction, gone));
    ATOLL_RETURN_IF_ERROR(transaction.commit());
    return swept;
}

// What goes wrong is logged: an hour later it is tried again.
std::int64_t sweep_once(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, std::int64_t rounds) try {
    const auto pruned = prune_versions(pool, rounds, {}, false);
    if (!pruned.ok()) spdlog::warn("removing updates of old rounds: {}", describe(pruned.error()));
    if (pruned.ok() && !pruned->empty()) spdlog::info("{} updates of old rounds are gone", pruned->size());
    if (const Status forgotten = forget_uploads(pool); !forgotten.ok())
        spdlog::warn("forgetting uploads: {}", describe(forgotten.error()));
    if (age.count() == 0) return 0;
    const auto removed = sweep(pool, blobs, age);
    if (!removed.ok()) spdlog::warn("sweeping blobs: {}", describe(removed.error()));
    if (!removed.ok() || removed->blobs == 0) return 0;
    spdlog::info("{} blobs that no version needs are gone, {} bytes", removed->blobs, removed->bytes);
    return removed->blobs;
} catch (const std::exception& exception) {
    spdlog::warn("sweeping blobs: {}", exception.what());
    return 0;
}

}  // namespace

Status forget_uploads(pg::Pool& pool) {
    ATOLL_TRY(auto connection, pool.acquire());
    return delete_old_uploads(*connection);
}

Result<BlobCount> sweep(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, bool dry_run) {
    BlobCount swept;
    for (const char first : std::string_view(kHexDigits))
        for (const char second : std::string_view(kHexDigits)) {
            ATOLL_TRY(const BlobCount some, sweep_directory(pool, blobs, {first, second}, age, dry_run));
            swept.blobs += some.blobs;
            swept.bytes += some.bytes;
        }
    return swept;
}

Result<std::vector<Json>> prune_versions(pg::Pool& pool, std::int64_t rounds, const PruneScope& scope, bool dry_run) {
    std::vector<Json> gone;
    while (rounds > 0) {
        ATOLL_TRY(auto connection, pool.acquire());
        if (dry_run) return outdated_versions(*connection, rounds, scope, kDryRunMax);
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
        ATOLL_RETURN_IF_ERROR(lock_blobs_alone(transaction));
        ATOLL_TRY(auto some, outdated_versions(*connection, rounds, scope, kPrunedAtOnce));
        if (some.empty()) break;
        ATOLL_RETURN_IF_ERROR(delete_versions(transaction, some));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        std::ranges::move(some, std::back_inserter(gone));
    }
    return gone;
}

BlobCount count_blobs(const BlobStore& blobs) {
    BlobCount held;
    for (const char first : std::string_view(kHexDigits))
        for (const char second : std::string_view(kHexDigits))
            for (const std::string& sha256 : blobs.older_than({first, second}, std::chrono::seconds(0)))
                if (const auto size = blobs.blob_size(sha256); size.ok()) {
                    ++held.blobs;
                    held.bytes += *size;
                }
    return held;
}

Sweeper::Sweeper(pg::Pool& pool, BlobStore& blobs, std::chrono::seconds age, std::int64_t rounds,
                 metrics::Registry& metrics, std::chrono::seconds grace) {
    auto& swept = metrics.counter(kMetrics["atoll_store_blobs_swept_total"]);
    auto& held = metrics.gauge(kMetrics["atoll_store_blobs"]);
    auto& held_bytes = metrics.gauge(kMetrics["atoll_store_blobs_bytes"]);
    const auto show_held = [&blobs, &held, &held_bytes] {
        const BlobCount now = count_blobs(blobs);
        held.Set(static_cast<double>(now.blobs));
        held_bytes.Set(static_cast<double>(now.bytes));
    };
    thread_ = std::jthread([&pool, &blobs, &swept, show_held, age, rounds, grace](const std::stop_token& stop) {
        show_held();
        std::chrono::seconds wait = grace;
        for (; wait_unless_stopped(stop, wait); wait = kSweepInterval) {
            swept.Increment(static_cast<double>(sweep_once(pool, blobs, age, rounds)));
            show_held();
        }
    });
}

}  // namespace atl::store
