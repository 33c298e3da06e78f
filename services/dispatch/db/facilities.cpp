#include "services/dispatch/db/facilities.h"

#include "services/dispatch/db/sql.h"
#include "services/dispatch/domain/batch_state.h"
#include "shared/base/backoff.h"
#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kCheckJobsMax = 8;  // of one caller at a facility

const std::string kPing = "interval '" + std::to_string(kBatchPing.count()) + " s'";

// What read_facility_waiting() reads.
const std::string kWaitingColumns = "waiting_reason, " + sql_to_ms("waiting_since") + " AS waiting_since_ms, " +
                                    sql_to_ms("coalesce(retry_at, now())") + " AS retry_ms, batch_silence, " +
                                    sql_to_ms("batch_silent_since") + " AS batch_silent_since_ms, " +
                                    sql_to_ms("greatest(batch_pinged_at + " + kPing + ", now())") +
                                    " AS batch_retry_ms";

// What tasks at the facility wait for that is in no other's way: room, a node that is drained; {reason, since} of the
// longest wait, and how many others there are. That its turn in the queue has not come is nothing to tell of.
const std::string kTaskWaits =
    "(SELECT jsonb_build_object('reason', (array_agg(w.reason ORDER BY w.since, w.reason))[1], 'since', " +
    pg::rfc3339("min(w.since)") +
    ", 'others', count(DISTINCT w.reason) - 1) FROM (SELECT coalesce(a.progress->'waiting'->>'reason', CASE WHEN "
    "a.step "
    "IN ('queued', 'running') THEN nullif(a.progress->>'queue_reason', '') END) AS reason, "
    "coalesce(to_timestamp((a.progress->'waiting'->>'since_ms')::bigint / 1000.0), "
    "to_timestamp(nullif(a.progress->>'queue_reason_since_ms', '0')::bigint / 1000.0), t.created_at) AS since FROM "
    "tasks t CROSS JOIN LATERAL (SELECT step, progress FROM attempts WHERE task_id = t.id ORDER BY number DESC LIMIT "
    "1) a WHERE t.facility = facilities.name AND t.kind <> 'clean' AND t.state IN ('pending', 'running')) AS w WHERE "
    "w.reason NOT IN ('Priority', 'Resources') AND NOT starts_with(w.reason, '" +
    std::string(kTurnNotCome) + "') HAVING count(*) > 0) AS task_waits";

const std::string kColumns = "name, " + std::string(kFacilityColumns) + ", devices, version, admin_pinned_host_key, " +
                             pg::rfc3339("created_at") + " AS created_at, " + pg::rfc3339("updated_at") +
                             " AS updated_at, " + kWaitingColumns + ", " + kTaskWaits;

std::optional<Waiting> read_facility_waiting(const pg::Rows& rows, int row) {
    if (!rows.is_null(row, "waiting_since_ms"))
        return Waiting{rows.text(row, "waiting_reason"), rows.integer(row, "waiting_since_ms"),
                       rows.integer(row, "retry_ms")};
    if (rows.is_null(row, "batch_silent_since_ms")) return std::nullopt;
    return Waiting{rows.text(row, "batch_silence"), rows.integer(row, "batch_silent_since_ms"),
                   rows.integer(row, "batch_retry_ms")};
}

Result<std::map<std::string, Waiting>> waiting_where(pg::Connection& connection, const std::string& condition) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT name, " + kWaitingColumns + " FROM facilities WHERE " + condition));
    std::map<std::string, Waiting> waiting;
    for (int i = 0; i < rows.size(); ++i)
        waiting[rows.text(i, "name")] = read_facility_waiting(rows, i).value_or(Waiting());
    return waiting;
}

Result<StoredFacility> read(const pg::Rows& rows, int row) {
    auto facility = read_facility(rows, row);
    if (!facility.ok())
        return internal_error("the facility \"" + rows.text(row, "name") +
                              "\" cannot be read: " + describe(facility.error()));
    return StoredFacility{std::move(facility).value(),
                          rows.json(row, "limits"),
                          rows.json(row, "devices"),
                          rows.integer(row, "version"),
                          rows.text(row, "created_at"),
                          rows.text(row, "updated_at"),
                          read_facility_waiting(rows, row),
                          rows.boolean(row, "admin_pinned_host_key"),
                          !rows.is_null(row, "waiting_since_ms"),
                          rows.is_null(row, "task_waits") ? Json() : rows.json(row, "task_waits")};
}

}  // namespace

Result<StoredFacility> find_facility(pg::Connection& connection, const std::string& name) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT " + kColumns + " FROM facilities WHERE name = $1", {name}));
    if (rows.empty()) return not_found("no facility \"" + name + "\"", "facility");
    return read(rows, 0);
}

Status require_facility(pg::Connection& connection, const std::string& name, const std::string& field) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT 1 FROM facilities WHERE name = $1 FOR KEY SHARE", {name}));
    if (!rows.empty()) return {};
    ATOLL_TRY(const pg::Rows all, connection.query("SELECT name FROM facilities ORDER BY name LIMIT 1000"));
    std::vector<std::string> names;
    for (int i = 0; i < all.size(); ++i) names.push_back(all.text(i, "name"));
    return invalid_argument(field, "there is no facility \"" + name + "\"" + did_you_mean(name, names));
}

Result<std::map<std::string, StoredFacility>> find_facilities(pg::Connection& connection,
                                                              const std::vector<std::string>& names) {
    // In one order, so that no two wait for one another.
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT " + kColumns +
                                                        " FROM facilities WHERE name IN (SELECT "
                                                        "jsonb_array_elements_text($1::jsonb)) ORDER BY name FOR KEY "
                                                        "SHARE",
                                                    {Json(names)}));
    std::map<std::string, StoredFacility> facilities;
    for (int i = 0; i < rows.size(); ++i) {
        ATOLL_TRY(facilities[rows.text(i, "name")], read(rows, i));
    }
    return facilities;
}

Status record_devices(pg::Connection& connection, const StoredFacility& checked, const Json& devices) {
    ATOLL_RETURN_IF_ERROR(connection.query("UPDATE facilities SET devices = $2 WHERE name = $1 AND version = $3",
                                           {checked.facility.name, devices, checked.version}));
    return {};
}

Status record_limits(pg::Connection& connection, const StoredFacility& checked,
                     const std::map<std::string, QueueLimits>& limits) {
    Json found = Json::object();
    for (const auto& [queue, one] : limits) found[queue] = to_json(one);
    ATOLL_RETURN_IF_ERROR(connection.query(
        "UPDATE facilities SET limits = coalesce((SELECT jsonb_object_agg(key, value || "
        "jsonb_build_object('found_at', " +
            pg::rfc3339("now()") + ")) FROM jsonb_each($2::jsonb)), '{}') WHERE name = $1 AND version = $3",
        {checked.facility.name, found, checked.version}));
    return {};
}

Status record_work_dir(pg::Connection& connection, const std::string& name) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("UPDATE facilities SET has_work_dir = true WHERE name = $1 AND NOT has_work_dir", {name}));
    return {};
}

Result<Facility> read_facility(const pg::Rows& rows, int row) {
    ATOLL_TRY(Facility facility, parse_facility(rows.json(row, "spec")));
    facility.has_work_dir = rows.boolean(row, "has_work_dir");
    const Json limits = rows.json(row, "limits");
    const auto take = [&](const std::string& name, Queue& queue) -> Status {
        if (!limits.is_object() || !limits.contains(name)) return {};
        ATOLL_TRY(queue.found, parse_queue_limits(limits.at(name), "limits." + name));
        return {};
    };
    for (auto& [name, queue] : facility.batch.queues) ATOLL_RETURN_IF_ERROR(take(name, queue));
    if (!abilities_of(facility.batch.kind).has_queues) ATOLL_RETURN_IF_ERROR(take(kMachine, facility.batch.machine));
    return facility;
}

Result<std::vector<StoredFacility>> list_facilities(pg::Connection& connection, const std::string& after,
                                                    std::int64_t limit) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT " + kColumns + " FROM facilities WHERE name > $1 ORDER BY name LIMIT $2",
                               {after, limit}));
    std::vector<StoredFacility> facilities;
    for (int i = 0; i < rows.size(); ++i) {
        ATOLL_TRY(StoredFacility facility, read(rows, i));
        facilities.push_back(std::move(facility));
    }
    return facilities;
}

Status require_own_place(pg::Transaction& transaction, const Facility& facility) {
    ATOLL_RETURN_IF_ERROR(transaction.query("SELECT pg_advisory_xact_lock(hashtext('facilities.place'))", {}));
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(
                  "SELECT name FROM facilities WHERE name <> $1 AND spec->>'work_dir' = $2 AND "
                  "spec->'transport'->>'kind' = $3 AND coalesce(spec->'transport'->>'host', '') = $4",
                  {facility.name, facility.work_dir, to_string(facility.transport.kind), facility.transport.host}));
    if (rows.empty()) return {};
    return conflict("the facility \"" + rows.text(0, "name") + "\" has this directory already" +
                        (facility.transport.host.empty() ? "" : " at " + facility.transport.host) +
                        "; each needs one of its own",
                    "work_dir");
}

Status insert_facility(pg::Transaction& transaction, const Facility& facility) {
    auto rows = transaction.query("INSERT INTO facilities (name, spec, admin_pinned_host_key) VALUES ($1, $2, $3)",
                                  {facility.name, to_json(facility), !facility.transport.host_key.empty()});
    if (!rows.ok() && rows.error().code == ErrorCode::kConflict)
        return conflict("there is a facility \"" + facility.name + "\" already", "name");
    return rows.ok() ? Status() : Status(rows.error());
}

Result<bool> has_tasks_at(pg::Connection& connection, const std::string& facility) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT 1 FROM tasks WHERE facility = $1 AND kind <> 'clean' AND "
                                                    "state IN ('pending', 'running') LIMIT 1",
                                                    {facility}));
    return !rows.empty();
}

Status require_idle(pg::Transaction& transaction, const std::string& name, const std::string& field) {
    // Whoever adds a task holds a key share of its facility's row.
    ATOLL_RETURN_IF_ERROR(transaction.query("SELECT 1 FROM facilities WHERE name = $1 FOR UPDATE", {name}));
    ATOLL_TRY(const pg::Rows rows,
              transaction.query(
                  "SELECT count(*) AS n FROM tasks WHERE facility = $1 AND state IN ('pending', 'running')", {name}));
    if (rows.integer(0, "n") == 0) return {};
    const std::string until =
        "cannot change while the facility has pending or running tasks (" + rows.text(0, "n") + ")";
    if (field == kSlotsMember) return conflict(until + ": try again when they have ended", field);
    return conflict(until +
                        "; attempts that are under way would not be found again. Where the site is gone for good, "
                        "cancel their jobs and give up what then waits for its answer: `atoll facility set " +
                        name + " --give-up-tasks`",
                    field);
}

Status update_facility(pg::Connection& connection, const StoredFacility& before, const Facility& facility,
                       bool by_admin) {
    const std::string& host_key = facility.transport.host_key;
    const bool is_same_key = host_key == before.facility.transport.host_key;
    const bool admin_pinned = is_same_key ? before.admin_pinned_host_key : by_admin && !host_key.empty();
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "UPDATE facilities SET spec = $2, devices = CASE WHEN $4 THEN NULL ELSE devices END, limits = CASE WHEN "
            "spec->'batch' = $2::jsonb->'batch' THEN limits END, version = "
            "version + 1, updated_at = now(), admin_pinned_host_key = $5, "
            "unknown_answers = 0, waiting_since = NULL, waiting_reason = '', retry_at = NULL, batch_silent_since = "
            "NULL, batch_silence = '', has_work_dir = has_work_dir AND NOT $6 WHERE name = $1 AND version = $3",
            {facility.name, to_json(facility), before.version, is_other_trainer(before.facility, facility),
             admin_pinned, !moved_member(before.facility, facility).empty()}));
    if (rows.affected() == 0)
        return Error{ErrorCode::kPreconditionFailed, "the facility was changed by somebody else; read it again", {}};
    return try_again(connection, facility.name);
}

Status look_at_once(pg::Transaction& transaction, const std::set<std::string>& names) {
    // In one order, so that no two wait for one another.
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "UPDATE facilities f SET retry_at = NULL FROM (SELECT name FROM facilities WHERE name IN (SELECT "
        "jsonb_array_elements_text($1::jsonb)) AND waiting_since IS NOT NULL ORDER BY name FOR NO KEY UPDATE) AS "
        "waiting WHERE f.name = waiting.name",
        {Json(names)}));
    return {};
}

Status try_again(pg::Connection& connection, const std::string& name) {
    ATOLL_RETURN_IF_ERROR(connection.query("UPDATE facilities SET retry_at = NULL WHERE name = $1", {name}));
    // What somebody else changes just now is about to be done.
    ATOLL_RETURN_IF_ERROR(connection.query(
        "UPDATE tasks SET next_step_at = now() WHERE id = ANY (ARRAY(SELECT t.id FROM tasks t JOIN attempts a ON "
        "a.task_id = t.id WHERE t.facility = $1 AND t.state IN ('pending', 'running') AND t.lease_until < now() AND "
        "a.number = (SELECT max(number) FROM attempts WHERE task_id = t.id) AND a.progress->>'waiting' IS NOT NULL FOR "
        "NO KEY UPDATE OF t SKIP LOCKED))",
        {name}));
    return {};
}

Result<std::map<std::string, Waiting>> silent_facilities(pg::Connection& connection) {
    return waiting_where(connection, "waiting_since IS NOT NULL");
}

Result<std::map<std::string, Waiting>> waiting_facilities(pg::Connection& connection) {
    return waiting_where(connection, "waiting_since IS NOT NULL OR batch_silent_since IS NOT NULL");
}

Result<std::optional<QueueToAsk>> take_queue_to_ask(pg::Connection& connection, std::chrono::milliseconds interval) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("UPDATE facilities SET batch_pinged_at = now() WHERE name = (SELECT f.name FROM "
                               "facilities f WHERE f.spec->'batch'->>'kind' <> 'local' AND f.waiting_since IS NULL AND "
                               "(f.retry_at IS NULL OR f.retry_at <= now()) AND "
                               // A time to come was written before the clock was set back.
                               "(f.batch_pinged_at <= now() - $1 * interval '1 ms' OR f.batch_pinged_at > now()) AND "
                               "(f.batch_silent_since IS NOT NULL OR EXISTS (SELECT 1 FROM tasks t WHERE t.facility = "
                               "f.name AND t.kind <> 'clean' AND t.state IN ('pending', 'running'))) ORDER BY "
                               "f.batch_pinged_at LIMIT 1 FOR NO KEY "
                               "UPDATE SKIP LOCKED) RETURNING " +
                                   std::string(kFacilityColumns) + ", " + sql_to_ms("now()") + " AS now_ms",
                               {static_cast<std::int64_t>(interval.count())}));
    if (rows.empty()) return std::optional<QueueToAsk>();
    ATOLL_TRY(Facility facility, read_facility(rows, 0));
    return std::optional(QueueToAsk{std::move(facility), rows.integer(0, "now_ms")});
}

Status record_batch_silence(pg::Connection& connection, const std::string& name, const std::string& reason) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("UPDATE facilities SET batch_silence = $2, batch_silent_since = coalesce(batch_silent_since, "
                         "now()) WHERE name = $1 AND batch_silence <> $2",
                         {name, reason}));
    return {};
}

Status record_batch_answer(pg::Connection& connection, const std::string& name, std::int64_t asked_ms) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("UPDATE facilities SET batch_silence = '', batch_silent_since = NULL WHERE name = $1 AND "
                         // A time to come was written before the clock was set back.
                         "(batch_silent_since <= to_timestamp($2 / 1000.0) OR batch_silent_since > now())",
                         {name, asked_ms}));
    return {};
}

Status record_answer(pg::Connection& connection, const std::string& name, const std::string& reason,
                     std::int64_t retry_ms, std::int64_t retry_ms_max) {
    if (reason.empty()) {
        ATOLL_RETURN_IF_ERROR(
            connection.query("UPDATE facilities SET unknown_answers = 0, waiting_since = NULL, waiting_reason = '', "
                             "retry_at = NULL WHERE name = $1 AND unknown_answers > 0",
                             {name}));
        return {};
    }
    // Many tasks may have asked at once: within a pause nothing is counted, else one short outage would make it long.
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query("UPDATE facilities SET unknown_answers = unknown_answers + CASE WHEN retry_at > now() "
                         "THEN 0 ELSE 1 END, waiting_since = coalesce(waiting_since, now()), waiting_reason = $2 WHERE "
                         "name = $1 RETURNING unknown_answers",
                         {name, reason}));
    if (rows.empty()) return {};
    const std::chrono::milliseconds pause =
        backoff_delay(rows.integer(0, "unknown_answers"), std::chrono::milliseconds(retry_ms),
                      std::chrono::milliseconds(retry_ms_max));
    ATOLL_RETURN_IF_ERROR(
        connection.query("UPDATE facilities SET retry_at = now() + $2::double precision * (0.75 + "
                         "random() / 2) * interval '1 ms' WHERE name = $1",
                         {name, static_cast<std::int64_t>(pause.count())}));
    return {};
}

Result<std::string> claim_check_job(pg::Transaction& transaction, const std::string& facility, const std::string& id,
                                    const std::string& subject) {
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM check_jobs WHERE asked_at < now() - interval '30 days'"));
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT pg_advisory_xact_lock(hashtextextended('check/' || $1, 0))", {subject}));
    ATOLL_TRY(const pg::Rows others,
              transaction.query("SELECT count(*) AS n, coalesce(min(id), '') AS id FROM check_jobs WHERE asked_by = $1"
                                " AND facility = $2 AND id <> $3 AND asked_at > now() - interval '1 day'",
                                {subject, facility, id}));
    if (others.integer(0, "n") >= kCheckJobsMax)
        return Error{ErrorCode::kResourceExhausted,
                     others.text(0, "n") + " check jobs of " + subject + " at " + facility +
                         " were asked for in the last day and not removed: wait until their checks have ended, or"
                         " remove one (DELETE /v1/facilities/" +
                         facility + "/check-jobs/" + others.text(0, "id") + ")",
                     {}};
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("INSERT INTO check_jobs AS c (facility, id, asked_by) VALUES ($1, $2, $3)"
                                " ON CONFLICT (facility, id) DO UPDATE SET asked_by = c.asked_by RETURNING c.asked_by",
                                {facility, id, subject}));
    return rows.text(0, "asked_by");
}

Result<std::string> find_check_job_owner(pg::Connection& connection, const std::string& facility,
                                         const std::string& id) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT asked_by FROM check_jobs WHERE facility = $1 AND id = $2", {facility, id}));
    if (rows.empty()) return not_found("the facility " + facility + " has no job " + id + " of a check", "id");
    return rows.text(0, "asked_by");
}

Status forget_check_job(pg::Connection& connection, const std::string& facility, const std::string& id) {
    ATOLL_RETURN_IF_ERROR(connection.query("DELETE FROM check_jobs WHERE facility = $1 AND id = $2", {facility, id}));
    return {};
}

}  // namespace atl::dispatch
