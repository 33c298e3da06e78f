#pragma once

#include "services/dispatch/domain/facility.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// kInvalidArgument: a name that `after` allows and `before` did not is a job's name, its id or the beginning of one,
// and nobody's: `allow` holds people and programs. Somebody may get a token of that name only later, so an unknown one
// is taken.
Status require_no_job_allowed(pg::Transaction& transaction, const Facility& before, const Facility& after);

}  // namespace atl::dispatch
