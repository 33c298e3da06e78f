#pragma once

#include <optional>
#include <string>

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

// The model that a job writes, and whose it was when the job was submitted.
struct OutputModel {
    std::string name;
    std::string owner;
};
// Of a job that is paused or has failed; nothing of another, or where its owner is not known.
Result<std::optional<OutputModel>> output_of_stopped_job(pg::Connection& connection, const std::string& id);

// running ⇄ paused; the time in between does not count towards deadlines. kConflict from any other state.
Status set_paused(pg::Transaction& transaction, const std::string& id, bool paused);

}  // namespace atl::dispatch
