#pragma once

#include <string>

#include "services/dispatch/domain/check_job.h"
#include "services/dispatch/sites/site.h"

namespace atl::dispatch {

// A short job that says what its ranks find at a facility. Submitted once; asked for until it has ended; then dropped,
// with its directory, wherever it stands.
Result<std::string> submit_check(Site& site, const CheckJob& check);
Result<CheckJobSeen> look_at_check(Site& site, const CheckJob& check);
Status drop_check(Site& site, const CheckJob& check);

}  // namespace atl::dispatch
