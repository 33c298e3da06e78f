#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/db/events.h"
#include "services/dispatch/domain/round_machine.h"
#include "services/dispatch/domain/waiting.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// The column `spec` of a job's row, `refused` of a round's. kInternal: it has been damaged.
Result<JobSpec> read_job_spec(const pg::Rows& rows, const std::string& id);
Result<std::vector<Refusal>> read_refusals(const pg::Rows& rows, int row);

// Locks the job's row and reads what a decision needs. kNotFound: no such job.
Result<JobView> lock_job(pg::Transaction& transaction, const std::string& id);

// The same without a lock, for who only shows it.
Result<JobView> load_job(pg::Transaction& transaction, const std::string& id);

// All rounds of a job, in their order.
Result<std::vector<Round>> all_rounds(pg::Transaction& transaction, const std::string& job);

// The model that a job writes; nothing once it has ended. kNotFound: no such job.
Result<std::optional<std::string>> find_output_model(pg::Connection& connection, const std::string& id);

// Who submitted a job. kNotFound: there is none.
Result<std::string> job_owner(pg::Connection& connection, const std::string& id);
// Locks the job's row as well, where its state is all that is asked.
Result<JobState> lock_job_state(pg::Transaction& transaction, const std::string& id);

// Writes a decision of the round machine with its events.
Status apply_decision(pg::Transaction& transaction, const Topics& topics, const JobView& job,
                      const JobDecision& decision);

// Locks the job, lets the round machine look at it and applies what it decides. A job that cannot be read has failed.
Status advance_job(pg::Transaction& transaction, const Topics& topics, const std::string& id);

// The same after the end of one of its tasks, which only counts where the round machine has said that so many change
// nothing. The job is locked.
Status advance_after_end(pg::Transaction& transaction, const Topics& topics, const Task& task);

// Ends a running job of whose rows one cannot be read, as those of another release: what runs is cancelled and cleaned
// up, as far as its tasks' rows tell.
Status fail_unreadable_job(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                           const std::string& why);

// Counts an update of a facility that was refused. A job that cannot be read is left to advance_job().
Status record_refusal(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                      const std::string& facility, const std::string& reason);

// What the column `records` of a job's row says. kInternal: it has been damaged.
Result<std::map<std::string, Record>> read_records(const pg::Rows& rows, int row);

// Keeps the model for the job that this transaction inserts. kConflict: a job that has not ended writes it.
Status claim_output_model(pg::Transaction& transaction, const std::string& model);
// kConflict: a job that has not ended writes the model.
Status require_unwritten(pg::Connection& connection, const std::string& model);

// kResourceExhausted: so many jobs and preparations of that owner, without the one `except`, have not ended; those that
// are cleaned up after count, too, where the site answers. Their number stays until the transaction ends.
Status require_room(pg::Transaction& transaction, const std::string& owner, std::int64_t active_max,
                    const std::string& except = {});

// How many jobs that owner has, those that have ended among them.
Result<std::int64_t> count_jobs(pg::Transaction& transaction, const std::string& owner);

// Inserts the job and applies its first decision. `by_admin`: no facility refuses it.
Status insert_job(pg::Transaction& transaction, const Topics& topics, const JobView& job, const std::string& created_by,
                  bool by_admin = false);

// Running jobs with a round that passed the deadline of its training or its evaluations, in the order of their ids.
Result<std::vector<std::string>> late_jobs(pg::Connection& connection);

// A round of a running job that waits for its aggregation.
struct RoundInAggregation {
    std::string job;
    std::int64_t number = 0;
    std::int64_t told_ms = 0;    // since its closing was put into the outbox
    std::int64_t unsent_ms = 0;  // age of the job's oldest event there; 0: Kafka has all
    std::optional<Waiting> waiting;
    std::int64_t now_ms = 0;
};
Result<std::vector<RoundInAggregation>> rounds_in_aggregation(pg::Connection& connection);
// What stands in the way of the round, if it still waits for its aggregation.
Status set_round_waiting(pg::Connection& connection, const RoundInAggregation& round,
                         const std::optional<Waiting>& waiting);

}  // namespace atl::dispatch
