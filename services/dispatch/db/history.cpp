#include "services/dispatch/db/history.h"

#include "services/dispatch/db/deletion.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

constexpr std::int64_t kDeletedAtOnce = 100;
constexpr std::int64_t kListedMax = 10'000;

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

// SQL of what is forgotten of the jobs that `of` chooses by their column "job_id".
pg::OldRows old_events(const std::string& of, const std::vector<pg::Param>& params) {
    return {"job_events", "job_id " + of, params, "number"};
}
pg::OldRows old_attempts(const std::string& of, const std::vector<pg::Param>& params) {
    return {"attempts",
            "task_id IN (SELECT id FROM tasks WHERE job_id " + of +
                ") AND number < (SELECT max(n.number) FROM attempts n WHERE n.task_id = attempts.task_id)",
            params, "task_id, number"};
}

Status prune_jobs(pg::Pool& pool, const Keep& keep, const std::stop_token& stop, const OnBatch& on_batch) {
    for (;;) {
        ATOLL_TRY(const std::string job, next_job(pool, keep.events_days));
        if (job.empty()) return {};
        ATOLL_RETURN_IF_ERROR(forget_history(pool, job, stop, on_batch));
        if (stop.stop_requested()) return {};
        ATOLL_RETURN_IF_ERROR(mark_pruned(pool, job));
    }
}

// What another replica has deleted meanwhile is gone; what has got a task to do is left for later.
bool is_passed_over(const Error& error) {
    return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kConflict;
}

using Delete = std::function<Status(const std::string& id)>;
using List = std::function<Result<std::vector<json::Json>>(pg::Connection&)>;

Status delete_each(pg::Pool& pool, const List& list, const std::stop_token& stop, const Delete& remove) {
    for (bool goes_on = true; goes_on && !stop.stop_requested();) {
        std::vector<json::Json> ended;
        {
            ATOLL_TRY(auto connection, pool.acquire());
            ATOLL_TRY(ended, list(*connection));
        }
        goes_on = false;
        for (const json::Json& one : ended) {
            if (stop.stop_requested()) return {};
            const Status removed = remove(one.at("id"));
            if (!removed.ok() && !is_passed_over(removed.error())) return removed;
            goes_on = goes_on || removed.ok();
        }
    }
    return {};
}

void note_deleted(const char* what, const std::string& id, const json::Json& left) {
    std::string sites;
    for (const json::Json& site : left) sites += (sites.empty() ? "" : ", ") + site.at("facility").get<std::string>();
    spdlog::info("{} {} ended long ago and is deleted; logs of its tasks stay at: {}", what, id, sites);
}

}  // namespace

Status forget_history(pg::Pool& pool, const std::string& job, const std::stop_token& stop, const OnBatch& on_batch) {
    for (const pg::OldRows& old : {old_events("= $1", {job}), old_attempts("= $1", {job})})
        ATOLL_RETURN_IF_ERROR(
            pg::delete_in_batches(pool, old, stop, [&](std::int64_t rows) { on_batch(old.table, rows); }));
    return {};
}

Status prune_history(pg::Pool& pool, const Keep& keep, const std::stop_token& stop, const OnBatch& on_batch) {
    ATOLL_RETURN_IF_ERROR(prune_jobs(pool, keep, stop, on_batch));
    if (keep.jobs_days == 0) return {};
    const auto jobs = [&](pg::Connection& connection) {
        return jobs_ended_before(connection, keep.jobs_days, kDeletedAtOnce);
    };
    ATOLL_RETURN_IF_ERROR(delete_each(pool, jobs, stop, [&](const std::string& id) -> Status {
        ATOLL_TRY(const json::Json left, delete_job(pool, id, stop));
        note_deleted("job", id, left);
        on_batch("jobs", 1);
        return {};
    }));
    const auto preparations = [&](pg::Connection& connection) {
        return preparations_ended_before(connection, keep.jobs_days, kDeletedAtOnce);
    };
    return delete_each(pool, preparations, stop, [&](const std::string& id) -> Status {
        ATOLL_TRY(auto connection, pool.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
        ATOLL_TRY(const json::Json left, delete_preparation(transaction, id));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        note_deleted("preparation", id, left);
        on_batch("preparations", 1);
        return {};
    });
}

Result<json::Json> prunable_history(pg::Connection& connection, const Keep& keep) {
    const std::string of = "IN (SELECT id FROM jobs WHERE NOT pruned AND finished_at < now() - $1 * interval '1 day')";
    const std::vector<pg::Param> days = {keep.events_days};
    json::Json prunable = {{"jobs", json::Json::array()}, {"preparations", json::Json::array()}};
    for (const auto& [key, rows] : {std::pair{"events", old_events(of, days)}, {"attempts", old_attempts(of, days)}}) {
        ATOLL_TRY(
            const pg::Rows count,
            connection.query("SELECT count(*) AS n FROM " + rows.table + " WHERE " + rows.condition, rows.params));
        prunable[key] = count.integer(0, "n");
    }
    if (keep.jobs_days == 0) return prunable;
    ATOLL_TRY(prunable["jobs"], jobs_ended_before(connection, keep.jobs_days, kListedMax));
    ATOLL_TRY(prunable["preparations"], preparations_ended_before(connection, keep.jobs_days, kListedMax));
    return prunable;
}

}  // namespace atl::dispatch
