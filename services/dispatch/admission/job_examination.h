#pragma once

#include <map>
#include <string>
#include <vector>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/domain/facility_check.h"
#include "services/dispatch/domain/job_spec.h"

namespace atl::dispatch {

using Facilities = std::map<std::string, StoredFacility>;

// One thing about a job that can be told before it is in any queue.
struct Finding {
    std::string path;      // whom it is about: "participants[0]", "evaluation.at[1]", "model"
    std::string facility;  // empty: the whole job
    CheckRow row;
    std::string field = {};  // of a failure: the member of the job to change
};
json::Json to_json(const Finding& finding);

// What a job moves between the coordinator and its facilities, at most: what a side has already is not sent again.
struct Travel {
    double to_facilities_bytes = 0;
    double from_facilities_bytes = 0;
};

struct Examination {
    std::vector<Finding> findings;
    Travel travel;
};

// Looks at everything that would fail at a facility and that is known here: data, tokenizer, context length, the rules
// of the settings, memory, resources, device. `copies` are those of the participants, then those of the evaluations.
// Pure.
Examination examine_job(const JobSpec& spec, const Facilities& facilities, const BaseModel& base,
                        const std::vector<NamedCopy>& copies);

// The first failure, with the number of the others.
Status first_failure(const Examination& examination);

}  // namespace atl::dispatch
