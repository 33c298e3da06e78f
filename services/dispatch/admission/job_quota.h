#pragma once

#include <cstdint>
#include <string>

#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

// How many jobs and preparations an operator may have; admins have no bound.
namespace atl::dispatch {

// Whether the caller may have one more that has not ended, beside at most `active_max` without the one `except`.
// kResourceExhausted.
Status require_room(pg::Transaction& transaction, const auth::Principal& principal, std::int64_t active_max,
                    const std::string& except = "");

// The same of a new job, which also counts with those that have ended: kConflict with the field "quota". Asked before
// anything is made for it, and again in the transaction that makes it.
Status require_room_for_job(pg::Transaction& transaction, const auth::Principal& principal, std::int64_t active_max);
Status require_room_for_job(pg::Pool& pool, const auth::Principal& principal, std::int64_t active_max);

}  // namespace atl::dispatch
