#include "services/dispatch/db/allowed_names.h"

#include <algorithm>

#include "shared/base/text.h"

namespace atl::dispatch {

Status require_no_job_allowed(pg::Transaction& transaction, const Facility& before, const Facility& after) {
    for (const std::string& name : after.allow) {
        if (std::find(before.allow.begin(), before.allow.end(), name) != before.allow.end()) continue;
        ATOLL_TRY(
            const pg::Rows jobs,
            transaction.query("SELECT created_by FROM jobs WHERE (name = $1::text OR (length($1) >= 8 AND "
                              "starts_with(id, $1))) AND NOT EXISTS (SELECT 1 FROM tokens WHERE subject = $1) "
                              "AND NOT EXISTS (SELECT 1 FROM jobs WHERE created_by = $1) ORDER BY id DESC LIMIT 1",
                              {name}));
        if (jobs.empty()) continue;
        const std::string owner = jobs.text(0, "created_by");
        return invalid_argument("allow", in_quotes(name) + " is a job of " + owner +
                                             ", and people are allowed, with all their jobs: `--allow " + owner + "`");
    }
    return {};
}

}  // namespace atl::dispatch
