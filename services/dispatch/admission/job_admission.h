#pragma once

#include <optional>
#include <string>

#include "services/dispatch/admission/job_examination.h"
#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/domain/job_spec.h"
#include "services/dispatch/domain/round_machine.h"
#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

struct Admission {
    JobView job;  // with versions and paths filled in
    Examination examination;
};

// The job as it is asked for, looked at before it is submitted. Other services are asked, so no connection is held
// meanwhile. Errors name the member of the body because of which nothing more can be told.
Result<Admission> consider_job(pg::Pool& pool, const Catalog& catalog, const json::Json& body,
                               const auth::Principal& principal);

// The same of a job that can be submitted: what was found to fail is an error, too.
Result<Admission> admit_job(pg::Pool& pool, const Catalog& catalog, const json::Json& body,
                            const auth::Principal& principal);

// The facilities that the job names and may use.
Result<Facilities> require_facilities(pg::Connection& connection, JobSpec& spec, const auth::Principal& principal);

// A job writes a model that does not exist yet, or one of its submitter's own. Its owner; nothing: there is none.
Result<std::optional<std::string>> require_output_model(const Catalog& catalog, const std::string& model,
                                                        const auth::Principal& principal);

}  // namespace atl::dispatch
