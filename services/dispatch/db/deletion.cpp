#include "services/dispatch/db/deletion.h"

#include "services/dispatch/db/history.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/domain/round_machine.h"

namespace atl::dispatch {
namespace {

using json::Json;

const std::string kUnended = "state IN ('running', 'paused')";
const std::string kUnderWay = "state IN ('pending', 'running')";

// `owner` is the tasks' column that names it: "job_id" or "preparation_id".
Status require_quiet(pg::Transaction& transaction, const std::string& owner, const std::string& id) {
    ATOLL_TRY(const pg::Rows tasks,
              transaction.query(
                  "SELECT kind, facility, reason FROM (SELECT t.kind, t.facility, coalesce(nullif(f.waiting_reason, "
                  "''), nullif(f.batch_silence, ''), a.progress->'waiting'->>'reason', '') AS reason FROM tasks t LEFT "
                  "JOIN facilities f ON f.name = t.facility LEFT JOIN LATERAL (SELECT progress FROM attempts WHERE "
                  "task_id = t.id ORDER BY number DESC LIMIT 1) a ON true WHERE t." +
                      owner + " = $1 AND t." + kUnderWay +
                      // Cleaning waits for the others.
                      ") AS each ORDER BY kind = 'clean', reason = '', facility LIMIT 1",
                  {id}));
    if (tasks.empty()) return {};
    const std::string facility = tasks.text(0, "facility");
    const std::string reason = tasks.text(0, "reason");
    const std::string way_out = reason.empty()
                                    ? "; try again when it has ended"
                                    : ": " + reason + "; try again when it has ended, or give it up: `atoll " +
                                          "facility set " + facility + " --give-up-tasks`";
    return conflict("a task at " + facility + " is still under way (" + tasks.text(0, "kind") + ")" + way_out, "id");
}

Result<Json> left_at_sites(pg::Transaction& transaction, const std::string& owner, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("SELECT t.facility, f.spec->>'work_dir' AS work_dir, jsonb_agg(t.id ORDER BY t.id) AS "
                                "tasks FROM tasks t LEFT JOIN facilities f ON f.name = t.facility WHERE t." +
                                    owner +
                                    " = $1 AND t.kind <> 'clean' AND EXISTS (SELECT 1 FROM attempts a WHERE a.task_id "
                                    "= t.id) GROUP BY 1, 2 ORDER BY 1",
                                {id}));
    Json left = Json::array();
    for (int i = 0; i < rows.size(); ++i)
        left.push_back({{"facility", rows.text(i, "facility")},
                        {"work_dir", rows.is_null(i, "work_dir") ? Json() : Json(rows.text(i, "work_dir"))},
                        {"tasks", rows.json(i, "tasks")}});
    return left;
}

Status delete_tasks(pg::Transaction& transaction, const std::string& owner, const std::string& id) {
    for (const std::string& rows : {"attempts WHERE task_id IN (SELECT id FROM tasks WHERE " + owner + " = $1)",
                                    "tasks WHERE " + owner + " = $1", std::string("ended_tasks WHERE owner = $1")})
        ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM " + rows, {id}));
    return {};
}

Status require_ended_job(pg::Transaction& transaction, const std::string& id) {
    ATOLL_TRY(const JobState state, lock_job_state(transaction, id));
    if (!is_finished(state))
        return conflict(std::string("the job is ") + to_string(state) + "; cancel it, or wait for its end", "state");
    return require_quiet(transaction, "job_id", id);
}

// `ended`: SQL of their id, name and finished_at.
Result<std::vector<Json>> read_ended(pg::Connection& connection, const std::string& ended, std::int64_t days,
                                     std::int64_t count_max) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT id, name, " + pg::rfc3339("finished_at") + " AS ended_at FROM (" + ended +
                                   ") AS ended WHERE finished_at < now() - $1 * interval '1 day' ORDER BY finished_at, "
                                   "id LIMIT $2",
                               {days, count_max}));
    std::vector<Json> items;
    for (int i = 0; i < rows.size(); ++i) {
        items.push_back({{"id", rows.text(i, "id")}, {"finished_at", rows.text(i, "ended_at")}});
        if (!rows.is_null(i, "name")) items.back()["name"] = rows.text(i, "name");
    }
    return items;
}

}  // namespace

Status delete_facility(pg::Transaction& transaction, const std::string& name) {
    // Whoever submits a job or adds a task holds a key share of its facilities' rows.
    ATOLL_TRY(const pg::Rows known, transaction.query("SELECT 1 FROM facilities WHERE name = $1 FOR UPDATE", {name}));
    if (known.empty()) return not_found("no facility \"" + name + "\"", "name");
    ATOLL_TRY(const pg::Rows jobs,
              transaction.query("SELECT id, name FROM jobs j WHERE " + kUnended +
                                    " AND (spec->'participants' @> $2 OR spec->'evaluation'->'at' @> $2 OR EXISTS "
                                    "(SELECT 1 FROM tasks t WHERE t.job_id = j.id AND t.facility = $1)) LIMIT 1",
                                {name, Json{{{"facility", name}}}}));
    if (!jobs.empty())
        return conflict("the job \"" + jobs.text(0, "name") + "\" (" + jobs.text(0, "id") + ") needs \"" + name +
                            "\" and has not ended",
                        "name");
    ATOLL_TRY(const pg::Rows tasks,
              transaction.query("SELECT CASE WHEN job_id IS NULL THEN 'the preparation ' || preparation_id ELSE "
                                "'the job ' || coalesce((SELECT '\"' || name || '\" (' || id || ')' FROM jobs WHERE id "
                                "= job_id), job_id) END AS owner, kind, count(*) OVER () AS n FROM tasks WHERE "
                                "facility = $1 AND " +
                                    kUnderWay + " ORDER BY created_at LIMIT 1",
                                {name}));
    if (!tasks.empty()) {
        const bool is_one = tasks.integer(0, "n") == 1;
        return conflict("\"" + name + "\" has " + tasks.text(0, "n") + (is_one ? " task" : " tasks") + " under way, " +
                            (is_one ? "" : "one of them ") + tasks.text(0, "kind") + " of " + tasks.text(0, "owner") +
                            "; try again when that has ended, or give it up: `atoll facility set " + name +
                            " --give-up-tasks`",
                        "name");
    }
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM facilities WHERE name = $1", {name}));
    return {};
}

Result<Json> delete_job(pg::Pool& pool, const std::string& id, const std::stop_token& stop) {
    const auto in_transaction = [&](const std::function<Result<Json>(pg::Transaction&)>& work) -> Result<Json> {
        ATOLL_TRY(auto connection, pool.acquire());
        ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
        ATOLL_RETURN_IF_ERROR(require_ended_job(transaction, id));
        ATOLL_TRY(Json answer, work(transaction));
        ATOLL_RETURN_IF_ERROR(transaction.commit());
        return answer;
    };
    ATOLL_RETURN_IF_ERROR(in_transaction([](pg::Transaction&) { return Json(); }));
    ATOLL_RETURN_IF_ERROR(forget_history(pool, id, stop, [](const std::string&, std::int64_t) {}));
    return in_transaction([&](pg::Transaction& transaction) -> Result<Json> {
        ATOLL_TRY(Json left, left_at_sites(transaction, "job_id", id));
        ATOLL_RETURN_IF_ERROR(delete_tasks(transaction, "job_id", id));
        for (const char* rows : {"job_events WHERE job_id", "rounds WHERE job_id", "jobs WHERE id"})
            ATOLL_RETURN_IF_ERROR(transaction.query(std::string("DELETE FROM ") + rows + " = $1", {id}));
        return left;
    });
}

Result<Json> delete_preparation(pg::Transaction& transaction, const std::string& id) {
    ATOLL_TRY(const pg::Rows known, transaction.query("SELECT 1 FROM preparations WHERE id = $1 FOR UPDATE", {id}));
    if (known.empty()) return not_found("no preparation " + id, "id");
    ATOLL_RETURN_IF_ERROR(require_quiet(transaction, "preparation_id", id));
    ATOLL_TRY(Json left, left_at_sites(transaction, "preparation_id", id));
    ATOLL_RETURN_IF_ERROR(delete_tasks(transaction, "preparation_id", id));
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM preparations WHERE id = $1", {id}));
    return left;
}

Result<std::vector<Json>> jobs_ended_before(pg::Connection& connection, std::int64_t days, std::int64_t count_max) {
    return read_ended(connection,
                      "SELECT id, name, finished_at FROM jobs j WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.job_id "
                      "= j.id AND t." +
                          kUnderWay + ")",
                      days, count_max);
}

Result<std::vector<Json>> preparations_ended_before(pg::Connection& connection, std::int64_t days,
                                                    std::int64_t count_max) {
    return read_ended(connection,
                      "SELECT p.id, NULL AS name, t.finished_at FROM preparations p JOIN tasks t ON t.preparation_id = "
                      "p.id AND t.kind = 'prepare' WHERE NOT EXISTS (SELECT 1 FROM tasks c WHERE c.preparation_id = "
                      "p.id AND c.kind = 'clean' AND c." +
                          kUnderWay + ")",
                      days, count_max);
}

}  // namespace atl::dispatch
