#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/domain/task_machine.h"
#include "shared/pg/lease.h"

namespace atl::dispatch {

// A task in the hands of one worker.
struct LeasedTask {
    Task task;
    Facility facility;
    pg::Lease lease;
    std::int64_t now_ms = 0;              // when it was leased, by the database's clock
    std::string fault = {};               // why the facility's row cannot be read
    bool is_silent = false;               // the facility gave no answer when it was last asked
    bool is_batch_system_silent = false;  // nor did its batch system
};

const pg::LeaseTable& task_leases();
// At which facilities a worker may take a step.
struct StepLimits {
    std::int64_t facility_steps_max = 256;  // at one at a time, of all processes; a cancellation may be one more
    std::vector<std::string> slow = {};     // none at these but cancellations
    bool takes_silent = true;               // one at a time at those that gave no answer when they were last asked
};
// A due task that nobody holds, if any: what is to be cancelled first, work before cleaning, and of those who have work
// at a facility each in turn, with the longest due one. Passed over are what a paused job would begin, facilities that
// are left alone for a while, and those that enough workers are busy with.
Result<std::optional<LeasedTask>> lease_task(pg::Connection& connection, const pg::LeaseTerms& terms,
                                             const StepLimits& limits = {});
// Inside db/ only. Nothing: since it was taken the lease has run out, and the task has been another worker's; it may
// have ended.
Result<std::optional<LeasedTask>> read_leased_task(pg::Connection& connection, const pg::Lease& lease);
// How long until the next task is due, at most `max`.
Result<std::chrono::milliseconds> time_to_next_task(pg::Connection& connection, std::chrono::milliseconds max);

// Writes the task, its newest attempt and when it is next due, and gives the lease back, once: the fence is stale
// afterwards, so that a commit whose answer was lost can be repeated. kPreconditionFailed: the fence is stale, and
// nothing may be written.
Status save_task(pg::Transaction& transaction, const TaskChange& change, std::int64_t fence);

// Those of the ids that are no task's, in their order.
Result<std::vector<std::string>> unknown_tasks(pg::Connection& connection, const std::vector<std::string>& ids);

// Those of the ids of jobs, in their order, that nothing needs at the facility any more: the job is not known or has
// ended, and no task of its there is still to do, as cleaning up.
Result<std::vector<std::string>> jobs_without_use(pg::Connection& connection, const std::string& facility,
                                                  const std::vector<std::string>& ids);

// The preparation that a task belongs to.
Status insert_preparation(pg::Transaction& transaction, const std::string& id, const json::Json& spec,
                          const std::string& created_by);
Result<std::int64_t> count_preparations(pg::Transaction& transaction, const std::string& created_by);
// Whoever LISTENs to it hears, once that is committed, that tasks have become due.
inline constexpr const char* kTaskChannel = "dispatch_tasks";
Status tell_workers(pg::Transaction& transaction);
Status insert_task(pg::Transaction& transaction, const Task& task);
Status insert_tasks(pg::Transaction& transaction, const std::vector<Task>& tasks);
// `reasons`, by task, are shown as the errors of those that have one.
Status request_cancel(pg::Transaction& transaction, const std::vector<std::string>& tasks,
                      const std::map<std::string, std::string>& reasons = {});

// Ends the tasks of a facility that wait for nothing but its answer, as abandon() does: cleanings, those that were
// cancelled, preparations. Others stay.
Status abandon_tasks(pg::Transaction& transaction, const std::string& facility, const std::string& who);

// The tasks of a facility whose attempt its batch system may know, as all lists here with their newest attempt and
// oldest first.
Result<std::vector<Task>> tasks_in_queue(pg::Connection& connection, const std::string& facility);
// Whether that is a job and paused.
Result<bool> is_paused(pg::Connection& connection, const std::string& job);
// The tasks of a job, or of a preparation, that left something at a facility.
Result<std::vector<Task>> tasks_at(pg::Connection& connection, const std::string& owner, const std::string& facility);
// The task of a job with that id, or with "" those of its current round.
Result<std::vector<Task>> tasks_with_logs(pg::Connection& connection, const std::string& job, const std::string& task);

// Of an attempt: its step, and what is kept of its logs, by file. kNotFound: there is no such attempt.
struct KeptLogs {
    Step step = Step::kStaging;
    std::map<std::string, std::string> text;
};
Result<KeptLogs> kept_logs(pg::Connection& connection, const std::string& task, std::int64_t attempt);

// The attempts whose logs could not be read at their ends and may be asked for again, oldest first: of this task, or,
// where it cleans up, of its job's at its facility.
Result<std::vector<AttemptLogs>> missing_logs(pg::Connection& connection, const Task& task, std::int64_t limit);

// How many jobs ("jobs") and tasks ("tasks") are in each state.
struct StateCount {
    std::string what;
    std::string state;
    std::int64_t count = 0;
};
Result<std::vector<StateCount>> count_by_state(pg::Connection& connection);

// Inside db/ only. `condition` is SQL on the tables `t` (tasks) and `a` (their newest attempts).
Result<std::vector<Task>> load_tasks(pg::Connection& connection, const std::string& condition,
                                     const std::vector<pg::Param>& params);

}  // namespace atl::dispatch
