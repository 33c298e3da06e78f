#include "services/dispatch/db/tasks.h"

#include <algorithm>
#include <set>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/sql.h"
#include "services/dispatch/db/tokens.h"
#include "shared/base/text.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using json::Json;

const std::string kTaskQuery =
    "SELECT t.id, t.job_id, t.preparation_id, t.round, t.kind, t.facility, t.params, t.state, t.attempts_max, "
    "t.cancel_requested, t.error, t.result, a.number, a.step, a.batch_id, a.exit_code, a.error AS attempt_error, "
    "a.progress FROM tasks t LEFT JOIN LATERAL (SELECT * FROM attempts WHERE task_id = t.id ORDER BY number DESC LIMIT "
    "1) a ON true ";

// What a word of a row stands for; one of another release is damage, and counts as `otherwise`.
template <class Enum>
Enum known(const Result<Enum>& word, Enum otherwise, const char* what, std::string& damage) {
    if (word.ok()) return *word;
    damage = std::string(what) + " cannot be read: " + describe(word.error());
    return otherwise;
}

Attempt read_attempt(const pg::Rows& rows, int row, std::string& damage) {
    Attempt attempt;
    attempt.number = rows.integer(row, "number");
    // Whatever it stands at may be running.
    attempt.step = known(parse_step(rows.text(row, "step")), Step::kRunning, "the attempt's step", damage);
    attempt.batch_id = rows.text(row, "batch_id");
    if (!rows.is_null(row, "exit_code")) attempt.exit_code = rows.integer(row, "exit_code");
    attempt.error = rows.text(row, "attempt_error");
    if (auto status = read_progress(rows.json(row, "progress"), attempt); !status.ok())
        damage = "the attempt's progress cannot be read: " + describe(status.error());
    return attempt;
}

Task read_task(const pg::Rows& rows, int row) {
    Task task;
    task.id = rows.text(row, "id");
    task.job = rows.text(row, "job_id");
    task.preparation = rows.text(row, "preparation_id");
    task.round = rows.integer(row, "round");
    task.facility = rows.text(row, "facility");
    const TaskKind kind =
        known(parse_task_kind(rows.text(row, "kind")), TaskKind::kClean, "the task's kind", task.damage);
    auto params = parse_task_params(kind, rows.json(row, "params"));
    if (!params.ok()) task.damage = "the task's parameters cannot be read: " + describe(params.error());
    task.params = params.ok() ? std::move(params).value() : empty_task_params(kind);
    task.state = known(parse_task_state(rows.text(row, "state")), TaskState::kFailed, "the task's state", task.damage);
    task.attempts_max = rows.integer(row, "attempts_max");
    task.cancel_requested = rows.boolean(row, "cancel_requested");
    task.error = rows.text(row, "error");
    task.result = rows.json(row, "result");
    const bool has_trained = kind == TaskKind::kTrain && task.state == TaskState::kDone;
    if (const Status result = has_trained ? check_training_result(task.result) : Status(); !result.ok())
        task.damage = "what the task has handed in cannot be read: " + describe(result.error());
    if (!rows.is_null(row, "number")) task.attempt = read_attempt(rows, row, task.damage);
    return task;
}

std::string quoted(const std::string& text) {
    std::string literal = "'";
    for (const char c : text) literal += c == '\'' ? "''" : std::string(1, c);
    return literal + "'";
}

// An attempt that was forgotten meanwhile has none.
constexpr std::int64_t kLogsKept = 10;  // of a task, those of the newest attempts

Status save_logs(pg::Transaction& transaction, const AttemptLogs& logs) {
    ATOLL_TRY(
        const pg::Rows rows,
        transaction.query("UPDATE attempts SET progress = jsonb_set(progress, '{log_tries}', to_jsonb($3::bigint)) "
                          "WHERE task_id = $1 AND number = $2",
                          {logs.task, logs.attempt, logs.tries}));
    if (rows.affected() == 0) return {};
    for (const auto& [file, text] : logs.text)
        ATOLL_RETURN_IF_ERROR(transaction.query(
            "INSERT INTO attempt_logs (task_id, number, file, text) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            {logs.task, logs.attempt, file, text}));
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM attempt_logs WHERE task_id = $1 AND number <= $2",
                                            {logs.task, logs.attempt - kLogsKept}));
    return {};
}

// A task whose step somebody does now.
const std::string kInHand =
    std::string("state IN ('pending', 'running') AND lease_until > now() AND lease_until < ") + pg::kBeyondAnyPause;

Status count_ended(pg::Transaction& transaction, const Task& task) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "INSERT INTO ended_tasks AS e (owner, kind, state, count) VALUES ($1, $2, $3, 1) "
        "ON CONFLICT (owner, kind, state) DO UPDATE SET count = e.count + 1",
        {task.job.empty() ? task.preparation : task.job, to_string(task.kind()), to_string(task.state)}));
    return {};
}

Status save_attempt(pg::Transaction& transaction, const Task& task) {
    if (!task.attempt) return {};
    const Attempt& attempt = *task.attempt;
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "INSERT INTO attempts (task_id, number, batch_job_name, step, batch_id, exit_code, error, progress) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (task_id, number) DO UPDATE SET step = $4, batch_id = $5, "
        "exit_code = $6, error = $7, progress = $8, "
        "finished_at = CASE WHEN $4 IN ('done', 'failed', 'interrupted', 'cancelled') THEN now() END",
        {task.id, attempt.number, batch_job_name(task), to_string(attempt.step), attempt.batch_id, attempt.exit_code,
         attempt.error, progress_json(attempt)}));
    return is_finished(attempt.step) ? revoke_attempt_tokens(transaction, task.id, attempt.number) : Status();
}

}  // namespace

const pg::LeaseTable& task_leases() {
    static const pg::LeaseTable table{
        .name = "tasks",
        .key = {"id"},
        .joins =
            "JOIN facilities f ON f.name = t.facility LEFT JOIN jobs j ON j.id = t.job_id LEFT JOIN preparations p "
            "ON p.id = t.preparation_id LEFT JOIN turns u ON u.facility = t.facility AND u.owner = "
            "coalesce(j.created_by, p.created_by)",
        .due =
            std::string("t.state IN ('pending', 'running') AND (t.next_step_at <= now() OR t.next_step_at > ") +
            pg::kBeyondAnyPause +
            // What was not submitted is cancelled without its site.
            ") AND (f.retry_at IS NULL OR f.retry_at <= now() OR f.retry_at > " + pg::kBeyondAnyPause +
            " OR "
            "(t.cancel_requested AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.step IN "
            "('submitting', 'queued', 'running', 'collecting')))) "
            // Of a paused job what may be in a queue is looked at and collected, its continuation too.
            "AND (j.state IS DISTINCT FROM 'paused' OR t.cancel_requested OR EXISTS (SELECT 1 FROM attempts a WHERE "
            "a.task_id = t.id AND (a.step IN ('submitting', 'queued', 'running', 'collecting') OR (t.state = 'pending' "
            "AND a.progress->>'continuation' <> '' AND a.step <> 'failed' AND a.number = (SELECT max(number) FROM "
            "attempts WHERE task_id = t.id))))) "
            // Cleaning waits until its job is quiet at the facility.
            "AND (t.kind <> 'clean' OR NOT EXISTS (SELECT 1 FROM tasks o WHERE o.job_id = t.job_id AND "
            "o.facility = t.facility AND o.kind <> 'clean' AND o.state IN ('pending', 'running')))",
        // What is to be cancelled keeps nodes from others. Work comes before cleaning, for a minute; then whoever's
        // turn at a facility was longest ago. (A turn to come was taken before the clock was set back.)
        .order =
            "NOT t.cancel_requested, (t.kind = 'clean' AND t.next_step_at > now() - interval '1 minute'), CASE WHEN "
            "u.taken_at < now() + "
            "interval '1 minute' THEN u.taken_at END NULLS FIRST, t.next_step_at"};
    return table;
}

namespace {

// The owner of the task's job or preparation has had a turn at its facility.
Status note_turn(pg::Connection& connection, const std::string& task) {
    ATOLL_RETURN_IF_ERROR(connection.query(
        "INSERT INTO turns (facility, owner, taken_at) SELECT t.facility, coalesce(j.created_by, p.created_by), now() "
        "FROM tasks t LEFT JOIN jobs j ON j.id = t.job_id LEFT JOIN preparations p ON p.id = t.preparation_id WHERE "
        "t.id = $1 ON CONFLICT (facility, owner) DO UPDATE SET taken_at = excluded.taken_at",
        {task}));
    return {};
}

}  // namespace

Result<std::optional<LeasedTask>> lease_task(pg::Connection& connection, const pg::LeaseTerms& terms,
                                             const StepLimits& limits) {
    pg::LeaseTable table = task_leases();
    const std::string in_hand = std::string("SELECT facility FROM tasks WHERE ") + kInHand;
    const auto has_room = [&](std::int64_t steps_max) {
        return "t.facility NOT IN (" + in_hand + " GROUP BY facility HAVING count(*) >= " + std::to_string(steps_max) +
               ")";
    };
    // A cancellation does not wait for looks that take long.
    table.due += " AND (" + has_room(limits.facility_steps_max) + " OR (t.cancel_requested AND " +
                 has_room(limits.facility_steps_max + 1) + "))";
    table.due += limits.takes_silent ? " AND (f.waiting_since IS NULL OR t.facility NOT IN (" + in_hand + "))"
                                     : " AND f.waiting_since IS NULL";
    for (const std::string& name : limits.slow)
        table.due += " AND (t.cancel_requested OR t.facility <> " + quoted(name) + ")";
    ATOLL_TRY(auto leased, pg::take_lease(connection, table, terms));
    if (!leased) return std::optional<LeasedTask>();
    pg::Lease& lease = leased->lease;
    lease.table = &task_leases();
    // Two may have taken the last free place at once. Whoever was second sees the first here.
    ATOLL_TRY(
        const pg::Rows beside,
        connection.query(std::string("SELECT count(*) AS n FROM tasks WHERE facility = $1 AND id <> $2 AND ") + kInHand,
                         {leased->rows.text(0, "facility"), lease.key.front()}));
    ATOLL_TRY(auto task, read_leased_task(connection, lease));
    if (!task) return task;
    const std::int64_t steps_max = limits.facility_steps_max + (task->task.cancel_requested ? 1 : 0);
    if (beside.integer(0, "n") < (task->is_silent ? 1 : steps_max)) {
        ATOLL_RETURN_IF_ERROR(note_turn(connection, task->task.id));
        return task;
    }
    ATOLL_RETURN_IF_ERROR(pg::give_lease_back(connection, lease, {},
                                              ", next_step_at = clock_timestamp() + random() * interval '100 ms'"));
    return std::optional<LeasedTask>();
}

Result<std::optional<LeasedTask>> read_leased_task(pg::Connection& connection, const pg::Lease& lease) {
    ATOLL_TRY(std::vector<Task> tasks,
              load_tasks(connection, "t.id = $1 AND t.fence = $2", {lease.key.front(), lease.fence}));
    if (tasks.empty()) return std::optional<LeasedTask>();
    LeasedTask task{std::move(tasks.front()), {}, lease};
    ATOLL_TRY(task.now_ms, database_now_ms(connection));
    ATOLL_TRY(const pg::Rows spec,
              connection.query("SELECT " + std::string(kFacilityColumns) +
                                   ", waiting_since, batch_silent_since FROM facilities WHERE name = $1",
                               {task.task.facility}));
    task.is_silent = !spec.is_null(0, "waiting_since");
    task.is_batch_system_silent = !spec.is_null(0, "batch_silent_since");
    auto facility = read_facility(spec, 0);
    if (facility.ok()) {
        task.facility = std::move(facility).value();
    } else {
        task.facility.name = task.task.facility;
        task.fault = "the facility cannot be read: " + describe(facility.error());
    }
    return std::optional(std::move(task));
}

Result<std::chrono::milliseconds> time_to_next_task(pg::Connection& connection, std::chrono::milliseconds max) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT " + sql_to_ms("min(next_step_at)") + " - " + sql_to_ms("clock_timestamp()") +
                               " AS ms FROM tasks WHERE state IN ('pending', 'running') AND next_step_at > now() AND "
                               "lease_until < now()"));
    if (rows.is_null(0, "ms")) return max;
    return std::clamp(std::chrono::milliseconds(rows.integer(0, "ms") + 1), std::chrono::milliseconds(1), max);
}

Status save_task(pg::Transaction& transaction, const TaskChange& change, std::int64_t fence) {
    const Task& task = change.task;
    const std::optional<Json> result = task.result.is_null() ? std::nullopt : std::optional(task.result);
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(
                  std::string("UPDATE tasks SET state = $3, error = coalesce(nullif($4, ''), error), result = $5, ") +
                      pg::kGiveLeaseBack +
                      ", next_step_at = clock_timestamp() + $6 * interval '1 ms', "
                      "finished_at = CASE WHEN $3 IN ('done', 'failed', 'cancelled') THEN now() END "
                      "WHERE id = $1 AND fence = $2",
                  {task.id, fence, to_string(task.state), task.error, result, change.next_in_ms}));
    if (rows.affected() != 1)
        return Error{ErrorCode::kPreconditionFailed, "another worker has taken task " + task.id, {}};
    if (is_finished(task.state)) ATOLL_RETURN_IF_ERROR(count_ended(transaction, task));
    ATOLL_RETURN_IF_ERROR(save_attempt(transaction, task));
    for (const AttemptLogs& logs : change.logs) ATOLL_RETURN_IF_ERROR(save_logs(transaction, logs));
    return {};
}

Status insert_preparation(pg::Transaction& transaction, const std::string& id, const json::Json& spec,
                          const std::string& created_by) {
    ATOLL_RETURN_IF_ERROR(transaction.query("INSERT INTO preparations (id, spec, created_by) VALUES ($1, $2, $3)",
                                            {id, spec, created_by}));
    return {};
}

Result<std::int64_t> count_preparations(pg::Transaction& transaction, const std::string& created_by) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("SELECT count(*) AS n FROM preparations WHERE created_by = $1", {created_by}));
    return rows.integer(0, "n");
}

Status tell_workers(pg::Transaction& transaction) {
    ATOLL_RETURN_IF_ERROR(transaction.query(std::string("NOTIFY ") + kTaskChannel));
    return {};
}

Result<std::vector<std::string>> unknown_tasks(pg::Connection& connection, const std::vector<std::string>& ids) {
    std::vector<std::string> unknown;
    if (ids.empty()) return unknown;
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT id FROM jsonb_array_elements_text($1) WITH ORDINALITY AS asked(id, at) WHERE "
                               "NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = asked.id) ORDER BY at",
                               {Json(ids)}));
    for (int i = 0; i < rows.size(); ++i) unknown.push_back(rows.text(i, "id"));
    return unknown;
}

Result<std::vector<std::string>> jobs_without_use(pg::Connection& connection, const std::string& facility,
                                                  const std::vector<std::string>& ids) {
    std::vector<std::string> without;
    if (ids.empty()) return without;
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query("SELECT id FROM jsonb_array_elements_text($1) WITH ORDINALITY AS asked(id, at) WHERE "
                         "NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = asked.id AND state IN ('running', 'paused')) "
                         "AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.job_id = asked.id AND facility = $2 AND "
                         "tasks.state IN ('pending', 'running')) ORDER BY at",
                         {Json(ids), facility}));
    for (int i = 0; i < rows.size(); ++i) without.push_back(rows.text(i, "id"));
    return without;
}

Status insert_tasks(pg::Transaction& transaction, const std::vector<Task>& tasks) {
    if (tasks.empty()) return {};
    std::set<std::string> facilities;
    for (const Task& task : tasks) facilities.insert(task.facility);
    // They stay where they are until the transaction ends, taken in one order, so that no two wait for one another.
    ATOLL_TRY(const pg::Rows known, transaction.query("SELECT name FROM facilities WHERE name IN (SELECT "
                                                      "jsonb_array_elements_text($1)) ORDER BY name FOR KEY SHARE",
                                                      {Json(facilities)}));
    for (int i = 0; i < known.size(); ++i) facilities.erase(known.text(i, "name"));
    const auto is_gone = [&](const Task& task) { return facilities.contains(task.facility); };
    for (const Task& task : tasks)  // where a facility was removed there is nothing that could clean up
        if (is_gone(task) && task.kind() != TaskKind::kClean)
            return not_found(
                "the facility " + in_quotes(task.facility) +
                    " was removed: register it again, or go on without it (`atoll job resume JOB --without " +
                    task.facility + "`)",
                "facility");
    const auto or_null = [](const std::string& id) { return id.empty() ? Json() : Json(id); };
    Json rows = Json::array();
    std::set<std::string> served;
    for (const Task& task : tasks) {
        if (is_gone(task)) continue;
        served.insert(task.facility);
        rows.push_back({{"id", task.id},
                        {"job_id", or_null(task.job)},
                        {"preparation_id", or_null(task.preparation)},
                        {"round", task.round},
                        {"kind", to_string(task.kind())},
                        {"facility", task.facility},
                        {"params", to_json(task.params)},
                        {"state", to_string(task.state)},
                        {"attempts_max", task.attempts_max}});
    }
    const std::string columns = "id, job_id, preparation_id, round, kind, facility, params, state, attempts_max";
    ATOLL_RETURN_IF_ERROR(transaction.query("INSERT INTO tasks (" + columns + ") SELECT " + columns +
                                                " FROM jsonb_populate_recordset(NULL::tasks, $1::jsonb)",
                                            {rows}));
    ATOLL_RETURN_IF_ERROR(tell_workers(transaction));
    return look_at_once(transaction, served);
}

Status insert_task(pg::Transaction& transaction, const Task& task) {
    return insert_tasks(transaction, {task});
}

Status request_cancel(pg::Transaction& transaction, const std::vector<std::string>& tasks,
                      const std::map<std::string, std::string>& reasons) {
    if (tasks.empty()) return {};
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "UPDATE tasks SET cancel_requested = true, next_step_at = now(), error = coalesce($2::jsonb->>id, error) WHERE "
        "id = ANY($1::text[]) AND state IN ('pending', 'running')",
        {sql_array(tasks), Json(reasons)}));
    return tell_workers(transaction);
}

Status abandon_tasks(pg::Transaction& transaction, const std::string& facility, const std::string& who) {
    ATOLL_TRY(const std::vector<Task> tasks,
              load_tasks(transaction.connection(),
                         "t.facility = $1 AND t.state IN ('pending', 'running') AND (t.kind IN ('clean', 'prepare') OR "
                         "t.cancel_requested)",
                         {facility}));
    for (const Task& task : tasks) {
        const Task ended = abandon(task, who);
        // Whoever has a step of it in hand finds its fence stale.
        ATOLL_TRY(const pg::Rows rows,
                  transaction.query("UPDATE tasks SET state = $2, error = $3, finished_at = now(), fence = fence + 1, "
                                    "lease_until = '-infinity' WHERE id = $1 AND state IN ('pending', 'running')",
                                    {ended.id, to_string(ended.state), ended.error}));
        if (rows.affected() == 0) continue;
        ATOLL_RETURN_IF_ERROR(count_ended(transaction, ended));
        ATOLL_RETURN_IF_ERROR(save_attempt(transaction, ended));
        spdlog::warn("task {} ({}): {}", ended.id, to_string(ended.kind()), ended.error);
    }
    return {};
}

Result<std::vector<Task>> load_tasks(pg::Connection& connection, const std::string& condition,
                                     const std::vector<pg::Param>& params) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query(kTaskQuery + "WHERE " + condition + " ORDER BY t.created_at, t.facility, t.id", params));
    std::vector<Task> tasks;
    for (int i = 0; i < rows.size(); ++i) tasks.push_back(read_task(rows, i));
    return tasks;
}

Result<std::vector<Task>> tasks_in_queue(pg::Connection& connection, const std::string& facility) {
    return load_tasks(connection, "t.facility = $1 AND t.state = 'running' AND a.step IN ('queued', 'running')",
                      {facility});
}

Result<bool> is_paused(pg::Connection& connection, const std::string& job) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT 1 FROM jobs WHERE id = $1 AND state = 'paused'", {job}));
    return !rows.empty();
}

Result<std::vector<Task>> tasks_at(pg::Connection& connection, const std::string& owner, const std::string& facility) {
    return load_tasks(connection,
                      "t.id = ANY (ARRAY(SELECT id FROM tasks WHERE job_id = $1 AND facility = $2 AND kind <> 'clean' "
                      "UNION ALL SELECT id FROM tasks WHERE preparation_id = $1 AND facility = $2 AND kind = "
                      "'prepare'))",
                      {owner, facility});
}

Result<std::vector<Task>> tasks_with_logs(pg::Connection& connection, const std::string& job, const std::string& task) {
    if (!task.empty()) return load_tasks(connection, "t.id = $2 AND t.job_id = $1 AND t.kind <> 'clean'", {job, task});
    return load_tasks(connection,
                      "t.job_id = $1 AND t.kind <> 'clean' AND t.round = (SELECT current_round FROM jobs WHERE id = "
                      "$1)",
                      {job});
}

Result<KeptLogs> kept_logs(pg::Connection& connection, const std::string& task, std::int64_t attempt) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT a.step, l.file, l.text FROM attempts a LEFT JOIN attempt_logs l ON l.task_id = "
                               "a.task_id AND l.number = a.number WHERE a.task_id = $1 AND a.number = $2",
                               {task, attempt}));
    if (rows.empty())
        return not_found(
            "there is no attempt " + std::to_string(attempt) + " of task " + task + ", or it is no longer kept",
            "attempt");
    KeptLogs logs;
    ATOLL_TRY(logs.step, parse_step(rows.text(0, "step")));
    for (int i = 0; i < rows.size(); ++i)
        if (!rows.is_null(i, "file")) logs.text[rows.text(i, "file")] = rows.text(i, "text");
    return logs;
}

Result<std::vector<AttemptLogs>> missing_logs(pg::Connection& connection, const Task& task, std::int64_t limit) {
    const bool is_of_job = task.kind() == TaskKind::kClean;
    const std::string tasks = is_of_job ? "IN (SELECT id FROM tasks WHERE job_id = $1 AND facility = $2)" : "= $1";
    std::vector<pg::Param> params{is_of_job ? task.job : task.id};
    if (is_of_job) params.emplace_back(task.facility);
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT task_id, number, step, (progress->>'log_tries')::bigint AS tries FROM attempts "
                               "WHERE (progress->>'log_tries')::bigint > 0 AND task_id " +
                                   tasks + " ORDER BY task_id, number LIMIT " + std::to_string(limit),
                               params));
    std::vector<AttemptLogs> missing;
    for (int i = 0; i < rows.size(); ++i) {
        AttemptLogs logs{rows.text(i, "task_id"), rows.integer(i, "number"), {}, rows.integer(i, "tries")};
        ATOLL_TRY(logs.step, parse_step(rows.text(i, "step")));
        missing.push_back(std::move(logs));
    }
    return missing;
}

Result<std::vector<StateCount>> count_by_state(pg::Connection& connection) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "WITH known AS (SELECT 'jobs' AS what, state, count(*) AS n FROM jobs GROUP BY state UNION ALL "
            "SELECT 'tasks', state, count(*) FROM tasks WHERE state IN ('pending', 'running') GROUP BY state UNION ALL "
            "SELECT 'tasks', state, sum(count) FROM ended_tasks GROUP BY state) "
            "SELECT what, state, coalesce(n, 0)::bigint AS n FROM (VALUES "
            "('jobs', 'running'), ('jobs', 'paused'), ('jobs', 'completed'), ('jobs', 'failed'), ('jobs', "
            "'cancelled'), "
            "('tasks', 'pending'), ('tasks', 'running'), ('tasks', 'done'), ('tasks', 'failed'), "
            "('tasks', 'cancelled')) AS each (what, state) LEFT JOIN known USING (what, state)"));
    std::vector<StateCount> counts;
    for (int i = 0; i < rows.size(); ++i)
        counts.push_back({rows.text(i, "what"), rows.text(i, "state"), rows.integer(i, "n")});
    return counts;
}

}  // namespace atl::dispatch
