#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

struct StoredFacility {
    Facility facility;
    json::Json devices;        // what its trainer computes on, as its last check found: ["cpu"]; null: not known
    std::int64_t version = 1;  // the ETag
    std::string created_at;
    std::string updated_at;
    std::string silent_since;  // when it was first asked and gave no answer since; empty: it answers
};

Result<StoredFacility> find_facility(pg::Connection& connection, const std::string& name);
// kInvalidArgument that names `field`: there is no such facility. Otherwise it stays until the transaction ends.
Status require_facility(pg::Connection& connection, const std::string& name, const std::string& field);
// Those of the names that are facilities'. They stay until the transaction ends.
Result<std::map<std::string, StoredFacility>> find_facilities(pg::Connection& connection,
                                                              const std::vector<std::string>& names);
// What a check of the facility, as it was in that version, has found.
Status record_devices(pg::Connection& connection, const StoredFacility& checked, const json::Json& devices);
// In order of names, after `after`, at most `limit`.
Result<std::vector<StoredFacility>> list_facilities(pg::Connection& connection, const std::string& after,
                                                    std::int64_t limit);
// kConflict that names "work_dir" and the other facility: it lies at the same place (transport, host, directory), where
// the two would take each other's data and models for their own. Otherwise the place stays free until the transaction
// ends.
Status require_own_place(pg::Transaction& transaction, const Facility& facility);
// kConflict: the name is taken.
Status insert_facility(pg::Transaction& transaction, const Facility& facility);
// kConflict that names `field`: the facility has tasks that are not finished. Otherwise it gets none until the
// transaction ends.
Status require_idle(pg::Transaction& transaction, const std::string& name, const std::string& field);
// kPreconditionFailed: `before` is not as it is now.
Status update_facility(pg::Connection& connection, const StoredFacility& before, const Facility& facility);

// A facility that gave no answer is left alone for a while, longer each time and never all at once; one that answered
// is used again.
Status record_answer(pg::Connection& connection, const std::string& name, bool has_answered, std::int64_t retry_ms,
                     std::int64_t retry_ms_max);
// Whoever has new work for facilities that are left alone has one look at them now.
Status look_at_once(pg::Transaction& transaction, const std::set<std::string>& names);
// Those that gave no answer when they were last asked, and since when, in Unix milliseconds.
Result<std::map<std::string, std::int64_t>> silent_facilities(pg::Connection& connection);

}  // namespace atl::dispatch
