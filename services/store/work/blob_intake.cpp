#include "services/store/work/blob_intake.h"

#include <algorithm>

#include "services/store/db/operator_quota.h"
#include "services/store/db/repository.h"
#include "services/store/db/retention.h"
#include "services/store/domain/version.h"
#include "shared/auth/subjects.h"
#include "shared/base/on_exit.h"
#include "shared/base/text.h"
#include "shared/log/log.h"

namespace atl::store {
namespace {

constexpr std::size_t kBlobCostMin = 64U << 10;  // of a quota: a file costs the disk more than its bytes
constexpr std::int64_t kOperatorShare = 4;       // of the file system, by default

std::int64_t default_operator_bytes_max(const BlobStore& blobs) {
    const auto space = blobs.space();
    return space.ok() ? static_cast<std::int64_t>(space->total) / kOperatorShare : 0;
}

Error quota_used_up(std::string message) {
    return {ErrorCode::kTooLarge, std::move(message), "body"};
}

}  // namespace

BlobIntake::BlobIntake(pg::Pool& pool, BlobStore& blobs, const Settings& settings)
    : pool_(pool),
      blobs_(blobs),
      operator_bytes_max_(settings.operator_unused_bytes_max.value_or(default_operator_bytes_max(blobs))) {}

BlobIntake::Quota BlobIntake::quota_of(const auth::Principal& principal) {
    if (principal.role == auth::Role::kFacility) return Quota::kAttempt;
    return is_person(principal) ? Quota::kOperator : Quota::kNone;
}

Status BlobIntake::reserve(const auth::Principal& principal, std::size_t bytes) {
    ATOLL_TRY(auto connection, pool_.acquire());
    if (quota_of(principal) == Quota::kOperator) {
        ATOLL_TRY(const bool fits, count_operator_upload(*connection, principal.subject, bytes, operator_bytes_max_));
        if (fits) return {};
        return quota_used_up("you have uploaded " + human_bytes(static_cast<std::uint64_t>(operator_bytes_max_)) +
                             " that no version needs, all that an operator may (store.operator_unused_bytes_max); make "
                             "versions of it, or wait until it is swept");
    }
    const auth::TaskScope& scope = *principal.scope;
    ATOLL_TRY(const std::int64_t readable, bytes_of_versions(*connection, {base_of_update(scope)}));
    const std::int64_t quota = upload_quota(readable);
    ATOLL_TRY(const bool fits, count_upload(*connection, scope, bytes, quota));
    if (fits) return {};
    return quota_used_up("attempt " + scope.attempt + " of task " + scope.task + " may upload " +
                         std::to_string(quota) +
                         " bytes, some times the size of its base, and so may three of the task's attempts together; "
                         "that is done");
}

void BlobIntake::refund(const auth::Principal& principal, std::size_t bytes) {
    const auto give_back = [&]() -> Status {
        ATOLL_TRY(auto connection, pool_.acquire());
        if (principal.scope) return uncount_upload(*connection, *principal.scope, bytes);
        return uncount_operator_upload(*connection, principal.subject, bytes);
    };
    if (const Status status = give_back(); !status.ok())
        spdlog::warn("bytes of {} that were not kept stay counted: {}", principal.subject, describe(status.error()));
}

Status BlobIntake::record(const auth::Principal& principal, const std::string& sha256, std::size_t cost, bool is_new) {
    const Quota quota = quota_of(principal);
    if (quota == Quota::kNone) return {};
    const std::size_t taken = is_new ? cost : 0;
    ATOLL_TRY(auto connection, pool_.acquire());
    if (quota == Quota::kAttempt) return record_upload(*connection, *principal.scope, sha256, taken);
    return record_operator_blob(*connection, principal.subject, sha256, taken);
}

Result<BlobStore::Stored> BlobIntake::keep(const auth::Principal& principal, const std::string& sha256,
                                           std::string_view bytes) {
    const Quota quota = quota_of(principal);
    const bool counts = quota != Quota::kNone && !blobs_.blob_size(sha256).ok();
    const std::size_t cost = std::max(bytes.size(), kBlobCostMin);
    if (counts) ATOLL_RETURN_IF_ERROR(reserve(principal, cost));
    OnExit give_back([&] {
        if (counts) refund(principal, cost);
    });
    const bool was_damaged = blobs_.is_damaged(sha256);
    // What dispatch brings is what an operator's job begins with.
    const bool leaves_room = quota == Quota::kOperator || principal.subject == auth::kDispatch;
    const auto reserves = leaves_room ? BlobStore::Reserve::kTwice : BlobStore::Reserve::kOnce;
    const auto stored = blobs_.put(sha256, bytes, reserves);
    if (!stored.ok()) return stored;
    const bool is_new = *stored == BlobStore::Stored::kNew;
    if (is_new) give_back.disarm();
    if (was_damaged) {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_RETURN_IF_ERROR(remove_damaged(*connection, sha256));
    }
    ATOLL_RETURN_IF_ERROR(record(principal, sha256, cost, is_new));
    return stored;
}

}  // namespace atl::store
