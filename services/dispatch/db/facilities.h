#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/domain/waiting.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

struct StoredFacility {
    Facility facility;
    json::Json limits;         // of its queues, by name, as its last check found; null: not known
    json::Json devices;        // what its trainer computes on, as its last check found: ["cpu"]; null: not known
    std::int64_t version = 1;  // the ETag
    std::string created_at;
    std::string updated_at;
    std::optional<Waiting> waiting = {};  // what stands in the way of everything there, or of what is to be submitted
    bool admin_pinned_host_key = false;   // then only admins change it
    bool is_silent = false;               // nothing can be done there at all
    json::Json task_waits = {};           // what its tasks wait for, as {reason, since, others}; null: none does
};

Result<StoredFacility> find_facility(pg::Connection& connection, const std::string& name);
// kInvalidArgument that names `field`: there is no such facility. Otherwise it stays until the transaction ends.
Status require_facility(pg::Connection& connection, const std::string& name, const std::string& field);
// Those of the names that are facilities'. They stay until the transaction ends.
Result<std::map<std::string, StoredFacility>> find_facilities(pg::Connection& connection,
                                                              const std::vector<std::string>& names);
// What a check of the facility, as it was in that version, has found.
Status record_devices(pg::Connection& connection, const StoredFacility& checked, const json::Json& devices);
// By the queues' names.
Status record_limits(pg::Connection& connection, const StoredFacility& checked,
                     const std::map<std::string, QueueLimits>& limits);
// Its work directory is there, and is made no second time.
Status record_work_dir(pg::Connection& connection, const std::string& name);
// The columns that read_facility() reads.
inline constexpr const char* kFacilityColumns = "spec, limits, has_work_dir";
Result<Facility> read_facility(const pg::Rows& rows, int row);
// In order of names, after `after`, at most `limit`.
Result<std::vector<StoredFacility>> list_facilities(pg::Connection& connection, const std::string& after,
                                                    std::int64_t limit);
// kConflict that names "work_dir" and the other facility: it lies at the same place (transport, host, directory), where
// the two would take each other's data and models for their own. Otherwise the place stays free until the transaction
// ends.
Status require_own_place(pg::Transaction& transaction, const Facility& facility);
// A host key that it brings is an admin's. kConflict: the name is taken.
Status insert_facility(pg::Transaction& transaction, const Facility& facility);
// Whether tasks there are not finished, but for cleaning up.
Result<bool> has_tasks_at(pg::Connection& connection, const std::string& facility);
// kConflict that names `field`: the facility has tasks that are not finished. Otherwise it gets none until the
// transaction ends.
Status require_idle(pg::Transaction& transaction, const std::string& name, const std::string& field);
// kPreconditionFailed: `before` is not as it is now. `by_admin`: a new host key is an admin's.
Status update_facility(pg::Connection& connection, const StoredFacility& before, const Facility& facility,
                       bool by_admin);

// A facility that cannot be reached or worked with (`reason` says why) is left alone for a while, longer each time and
// never all at once; one that answered (no reason) is used again.
Status record_answer(pg::Connection& connection, const std::string& name, const std::string& reason,
                     std::int64_t retry_ms, std::int64_t retry_ms_max);
// Whoever has new work for facilities that are left alone has one look at them now.
Status look_at_once(pg::Transaction& transaction, const std::set<std::string>& names);
// Whoever has mended something at a facility has all that waits there tried now.
Status try_again(pg::Connection& connection, const std::string& name);
// Those that could not be reached or worked with when they were last asked.
Result<std::map<std::string, Waiting>> silent_facilities(pg::Connection& connection);
// These, and those whose batch system gave no answer.
Result<std::map<std::string, Waiting>> waiting_facilities(pg::Connection& connection);
// How often a batch system that somebody waits for is asked whether it answers.
constexpr std::chrono::seconds kBatchPing{15};
// A facility with unfinished tasks whose batch system was not asked for `interval` whether it answers; from now on it
// was. Passed over are those that cannot be reached or worked with.
struct QueueToAsk {
    Facility facility;
    std::int64_t now_ms = 0;  // by the database's clock
};
Result<std::optional<QueueToAsk>> take_queue_to_ask(pg::Connection& connection, std::chrono::milliseconds interval);
// The facility's batch system gives no answer, for this reason.
Status record_batch_silence(pg::Connection& connection, const std::string& name, const std::string& reason);
// It answered a question that was asked then. An answer from before its silence, which a task may see later, ends none.
Status record_batch_answer(pg::Connection& connection, const std::string& name, std::int64_t asked_ms);

// Who has asked for this job of the facility's check: `subject` from now on, if nobody had. Those of a month ago are
// forgotten. kResourceExhausted: the subject has asked for several others within a day that were not removed.
Result<std::string> claim_check_job(pg::Transaction& transaction, const std::string& facility, const std::string& id,
                                    const std::string& subject);
// kNotFound: nobody has.
Result<std::string> find_check_job_owner(pg::Connection& connection, const std::string& facility,
                                         const std::string& id);
Status forget_check_job(pg::Connection& connection, const std::string& facility, const std::string& id);

}  // namespace atl::dispatch
