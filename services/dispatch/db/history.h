#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "services/dispatch/settings.h"
#include "shared/json/json.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Told how many rows of which table went.
using OnBatch = std::function<void(const std::string& table, std::int64_t rows)>;

// Forgets a job's events, and of each of its tasks' attempts all but the newest; in batches, until none is left or
// `stop`.
Status forget_history(pg::Pool& pool, const std::string& job, const std::stop_token& stop, const OnBatch& on_batch);

// Forgets what is older than is kept, job by job, until nothing is left or `stop`: the history of jobs first, then
// whole jobs and preparations (delete_job). Safe to be killed at any instant; several replicas may do it at once.
Status prune_history(pg::Pool& pool, const Keep& keep, const std::stop_token& stop, const OnBatch& on_batch);

// What prune_history() would take: {"events", "attempts", "jobs": [{"id", "name", "finished_at"}], "preparations":
// [{"id", "finished_at"}]}, ten thousand of each at most. The numbers count what goes with its job as well.
Result<json::Json> prunable_history(pg::Connection& connection, const Keep& keep);

}  // namespace atl::dispatch
