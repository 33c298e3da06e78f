#pragma once

#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/db/jobs.h"

// What people order of a job: pause, resume, readmit. Each in one transaction, under the lock of the job's row.
namespace atl::dispatch {

// Takes a participant out of its quarantine. kNotFound: it is none of the job's; kConflict: the job has ended, and not
// failed.
Status readmit_participant(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                           const std::string& facility);

// Goes on with a paused job as the order says, or, without an order, with one that failed; errors of the round
// machine's resume_job() and resume_failed_job(). kConflict, too, where another job writes the model of one that
// failed.
Status resume_job(pg::Transaction& transaction, const Topics& topics, const std::string& id, const ResumeOrder& order);

// What a job that is paused or has failed needs of the store to go on.
struct StoppedJob {
    std::string output_model;
    std::optional<std::string> output_owner;  // when it was submitted; unset: not known
    std::vector<std::string> versions;        // that the newest round and the one to go on from began with and made
};
// Nothing: the job neither is paused nor has failed, or there is none.
Result<std::optional<StoppedJob>> find_stopped_job(pg::Connection& connection, const std::string& id,
                                                   std::optional<std::int64_t> from_round);

// running ⇄ paused; the time in between does not count towards deadlines. kConflict from any other state.
Status set_paused(pg::Transaction& transaction, const std::string& id, bool paused);

}  // namespace atl::dispatch
