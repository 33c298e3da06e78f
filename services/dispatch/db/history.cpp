#include "services/dispatch/db/history.h"

namespace atl::dispatch {
namespace {

// The job that ended first of those that are to be pruned; "": none.
Result<std::string> next_job(pg::Pool& pool, std::int64_t days) {
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_TRY(const pg::Rows rows,
              connection->query("SELECT id FROM jobs WHERE NOT pruned AND finished_at < now() - $1 * interval '1 day' "
                                "ORDER BY finished_at LIMIT 1",
                                {days}));
    return rows.empty() ? std::string() : rows.text(0, "id");
}

Status mark_pruned(pg::Pool& pool, const std::string& job) {
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_RETURN_IF_ERROR(connection->query("UPDATE jobs SET pruned = true WHERE id = $1", {job}));
    return {};
}

}  // namespace

Status prune_history(pg::Pool& pool, std::int64_t days, const std::stop_token& stop,
                     const std::function<void(const std::string& table, std::int64_t rows)>& on_batch) {
    for (;;) {
        ATOLL_TRY(const std::string job, next_job(pool, days));
        if (job.empty()) return {};
        const pg::OldRows events{"job_events", "job_id = $1", {job}, "number"};
        const pg::OldRows attempts{"attempts",
                                   "task_id IN (SELECT id FROM tasks WHERE job_id = $1) AND number < (SELECT "
                                   "max(n.number) FROM attempts n WHERE n.task_id = attempts.task_id)",
                                   {job},
                                   "task_id, number"};
        for (const pg::OldRows& old : {events, attempts})
            ATOLL_RETURN_IF_ERROR(
                pg::delete_in_batches(pool, old, stop, [&](std::int64_t rows) { on_batch(old.table, rows); }));
        if (stop.stop_requested()) return {};
        ATOLL_RETURN_IF_ERROR(mark_pruned(pool, job));
    }
}

}  // namespace atl::dispatch
