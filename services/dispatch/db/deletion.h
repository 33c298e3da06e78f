#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/json/json.h"
#include "shared/pg/pg.h"

// What goes for good: facilities, jobs and preparations that nothing needs any more.
namespace atl::dispatch {

// kNotFound; kConflict names what needs it: a job that has not ended, or tasks that are under way there. Its history
// stays, in which it is a word.
Status delete_facility(pg::Transaction& transaction, const std::string& name);

// Deletes a job, or a preparation, that has ended, with its rounds, tasks, attempts and events. What it leaves at the
// sites: [{"facility", "work_dir": text or null, "tasks": [id, …]}], where each task has a directory of logs.
// kNotFound; kConflict: it goes on, or is still being cleaned up after. A job's events and earlier attempts go first,
// in batches, as prune_history() takes them, and then all else at once: whoever is killed in between leaves an ended
// job with a shorter history.
Result<json::Json> delete_job(pg::Pool& pool, const std::string& id, const std::stop_token& stop = {});
Result<json::Json> delete_preparation(pg::Transaction& transaction, const std::string& id);

// Of the jobs, or the preparations, that ended `days` ago those that ended first: {"id", "name" of a job,
// "finished_at"}.
Result<std::vector<json::Json>> jobs_ended_before(pg::Connection& connection, std::int64_t days,
                                                  std::int64_t count_max);
Result<std::vector<json::Json>> preparations_ended_before(pg::Connection& connection, std::int64_t days,
                                                          std::int64_t count_max);

}  // namespace atl::dispatch
