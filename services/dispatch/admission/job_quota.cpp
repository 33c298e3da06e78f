#include "services/dispatch/admission/job_quota.h"

#include "services/dispatch/db/jobs.h"

namespace atl::dispatch {
namespace {

constexpr std::int64_t kJobsMax = 2000;  // of one operator, those that have ended among them

}  // namespace

Status require_room(pg::Transaction& transaction, const auth::Principal& principal, std::int64_t active_max,
                    const std::string& except) {
    if (principal.role == auth::Role::kAdmin) return {};
    return require_room(transaction, principal.subject, active_max, except);
}

Status require_room_for_job(pg::Transaction& transaction, const auth::Principal& principal, std::int64_t active_max) {
    if (principal.role == auth::Role::kAdmin) return {};
    ATOLL_RETURN_IF_ERROR(require_room(transaction, principal, active_max));
    ATOLL_TRY(const std::int64_t count, count_jobs(transaction, principal.subject));
    if (count < kJobsMax) return {};
    return conflict("you have " + std::to_string(count) +
                        " jobs, all that an operator may: remove those that have ended (`atoll job rm`)",
                    "quota");
}

Status require_room_for_job(pg::Pool& pool, const auth::Principal& principal, std::int64_t active_max) {
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
    return require_room_for_job(transaction, principal, active_max);
}

}  // namespace atl::dispatch
