#include "services/dispatch/db/jobs.h"

#include <algorithm>
#include <limits>
#include <set>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/sql.h"
#include "services/dispatch/db/tasks.h"
#include "shared/base/contained.h"
#include "shared/base/id.h"
#include "shared/base/text.h"
#include "shared/pg/lease.h"

namespace atl::dispatch {
namespace {

Result<std::vector<std::string>> read_accepted(const pg::Rows& rows, int row) {
    std::vector<std::string> accepted;
    const json::Json list = rows.json(row, "accepted");
    for (const json::Json& task : list) {
        if (!list.is_array() || !task.is_string())
            return internal_error("round " + rows.text(row, "number") + " cannot be read: accepted must hold tasks");
        accepted.push_back(task.get<std::string>());
    }
    return accepted;
}

const std::string kRoundColumns =
    "number, index, parent, state, base_digest, version_digest, evaluated, error, accepted, refused, contributions, " +
    sql_to_ms("deadline_at") + " AS deadline_ms, " + sql_to_ms("closed_at") + " AS closed_ms, " +
    sql_to_ms("evaluate_by") + " AS evaluate_by_ms, " + sql_to_ms("ask_again_at") + " AS ask_again_ms";

Result<Round> read_round(const pg::Rows& rows, int row) {
    Round round;
    round.number = rows.integer(row, "number");
    round.index = rows.integer(row, "index");
    round.parent = rows.integer(row, "parent");
    ATOLL_TRY(round.state, parse_round_state(rows.text(row, "state")));
    round.base = rows.text(row, "base_digest");
    round.version = rows.text(row, "version_digest");
    round.evaluated = rows.boolean(row, "evaluated");
    round.error = rows.text(row, "error");
    if (!rows.is_null(row, "deadline_ms")) round.deadline_ms = rows.integer(row, "deadline_ms");
    if (!rows.is_null(row, "closed_ms")) round.closed_ms = rows.integer(row, "closed_ms");
    if (!rows.is_null(row, "evaluate_by_ms")) round.evaluate_by_ms = rows.integer(row, "evaluate_by_ms");
    if (!rows.is_null(row, "ask_again_ms")) round.ask_again_ms = rows.integer(row, "ask_again_ms");
    ATOLL_TRY(round.accepted, read_accepted(rows, row));
    ATOLL_TRY(round.refused, read_refusals(rows, row));
    round.contributions = rows.json(row, "contributions");
    return round;
}

Status read_rounds(pg::Transaction& transaction, JobView& job, std::int64_t current) {
    ATOLL_TRY(const pg::Rows rows, transaction.query("SELECT " + kRoundColumns +
                                                         " FROM rounds WHERE job_id = $1 AND (number = $2 OR (state = "
                                                         "'closed' AND NOT evaluated)) ORDER BY number",
                                                     {job.id, current}));
    for (int i = 0; i < rows.size(); ++i) {
        ATOLL_TRY(Round round, read_round(rows, i));
        if (round.number == current) job.round = round;
        if (round.state == RoundState::kClosed && !round.evaluated) job.closed.push_back(std::move(round));
    }
    return {};
}

Status save_round(pg::Transaction& transaction, const std::string& job, const Round& round) {
    json::Json refused = json::Json::array();
    for (const auto& update : round.refused)
        refused.push_back(
            {{"task", update.task}, {"reason", update.reason}, {"fault", update.is_sites_fault ? "site" : "store"}});
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "INSERT INTO rounds (job_id, number, state, base_digest, version_digest, evaluated, error, deadline_at, "
        "evaluate_by, accepted, refused, ask_again_at, contributions, index, parent, closed_at) VALUES ($1, $2, $3, "
        "$4, $5, $6, $7, " +
            sql_from_ms("$8") + ", " + sql_from_ms("$9") + ", $10, $11, " + sql_from_ms("$12") +
            ", $13, $14, $15, CASE WHEN $3 IN ('closed', 'failed', 'cancelled') THEN now() END) ON CONFLICT (job_id, "
            "number) DO UPDATE SET "
            "state = $3, version_digest = $5, evaluated = $6, error = $7, deadline_at = excluded.deadline_at, "
            "evaluate_by = excluded.evaluate_by, quiet_ends = 0, quiet_losses = 0, "
            "accepted = $10, refused = $11, ask_again_at = excluded.ask_again_at, contributions = $13, "
            "aggregating_at = CASE WHEN $3 <> 'training' AND $2 > 0 THEN coalesce(rounds.aggregating_at, now()) END, "
            "closed_at = CASE WHEN $3 IN ('closed', 'failed', 'cancelled') THEN coalesce(rounds.closed_at, now()) END, "
            "evaluated_at = CASE WHEN $6 THEN coalesce(rounds.evaluated_at, now()) END",
        {job, round.number, to_string(round.state), round.base, round.version, round.evaluated, round.error,
         round.deadline_ms, round.evaluate_by_ms, json::Json(round.accepted), std::move(refused), round.ask_again_ms,
         round.contributions, round.index, round.parent}));
    ATOLL_RETURN_IF_ERROR(transaction.query("UPDATE jobs SET current_round = greatest(current_round, $2) WHERE id = $1",
                                            {job, round.number}));
    return {};
}

}  // namespace

Result<std::vector<Round>> all_rounds(pg::Transaction& transaction, const std::string& job) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("SELECT " + kRoundColumns + " FROM rounds WHERE job_id = $1 ORDER BY number", {job}));
    std::vector<Round> rounds;
    for (int i = 0; i < rows.size(); ++i) {
        ATOLL_TRY(Round round, read_round(rows, i));
        rounds.push_back(std::move(round));
    }
    return rounds;
}

Result<JobSpec> read_job_spec(const pg::Rows& rows, const std::string& id) {
    auto spec = parse_job_spec(rows.json(0, "spec"), JobSource::kDatabase);
    if (!spec.ok()) return internal_error("the job " + id + " cannot be read: " + describe(spec.error()));
    return spec;
}

Result<std::vector<Refusal>> read_refusals(const pg::Rows& rows, int row) {
    auto refusals = parse_refused(rows.json(row, "refused"), "refused");
    if (!refusals.ok())
        return internal_error("round " + rows.text(row, "number") + " cannot be read: " + describe(refusals.error()));
    return refusals;
}

Result<std::map<std::string, Record>> read_records(const pg::Rows& rows, int row) {
    const json::Json column = rows.json(row, "records");
    std::map<std::string, Record> records;
    for (const auto& [facility, value] : column.items()) {
        json::ObjectReader reader(value, "records." + facility);
        Record& record = records[facility];
        record.refusals = reader.required_integer("refusals", 0, INT64_MAX);
        record.reason = reader.required_string("reason");
        record.is_left_out = reader.boolean_or("left_out", false);
        record.counted_round = reader.integer_or("counted_round", 0, 0, INT64_MAX);
        record.best_perplexity = reader.number_or("best_perplexity", 0, 0, std::numeric_limits<double>::max());
        record.best_round = reader.integer_or("best_round", 0, 0, INT64_MAX);
        record.opposed_rounds = reader.integer_or("opposed_rounds", 0, 0, INT64_MAX);
        if (const Status read = reader.finish(); !read.ok())
            return internal_error("the job cannot be read: " + describe(read.error()));
    }
    return records;
}

Status record_refusal(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                      const std::string& facility, const std::string& reason) {
    const auto job = lock_job(transaction, id);
    if (!job.ok()) return job.error().code == ErrorCode::kInternal ? Status() : Status(job.error());
    return apply_decision(transaction, topics, *job, count_refused_update(*job, facility, reason));
}

Result<std::optional<std::string>> find_output_model(pg::Connection& connection, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT state, spec->>'output_model' AS model FROM jobs WHERE id = $1", {id}));
    if (rows.empty()) return not_found("there is no job " + id, "data.job");
    ATOLL_TRY(const JobState state, parse_job_state(rows.text(0, "state")));
    return is_finished(state) ? std::nullopt : std::optional(rows.text(0, "model"));
}

Result<std::string> job_owner(pg::Connection& connection, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT created_by FROM jobs WHERE id = $1", {id}));
    if (rows.empty()) return not_found("no job " + id);
    return rows.text(0, "created_by");
}

Result<JobState> lock_job_state(pg::Transaction& transaction, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows, transaction.query("SELECT state FROM jobs WHERE id = $1 FOR UPDATE", {id}));
    if (rows.empty()) return not_found("there is no job " + id, "id");
    return parse_job_state(rows.text(0, "state"));
}

namespace {

// The job's facilities that are not for jobs of its owner, each with that as a reason.
Result<std::map<std::string, std::string>> find_disallowed(pg::Connection& connection, const JobSpec& spec,
                                                           const std::string& owner) {
    json::Json names = json::Json::array();
    for (const Participant& one : spec.participants) names.push_back(one.data.facility);
    for (const DatasetCopy& copy : spec.evaluation_copies) names.push_back(copy.facility);
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT name, coalesce(spec->>'owner', '') AS owner, coalesce(spec->'allow', '[]') AS "
                               "allow FROM facilities WHERE name IN (SELECT jsonb_array_elements_text($1::jsonb))",
                               {names}));
    std::map<std::string, std::string> disallowed;
    for (int i = 0; i < rows.size(); ++i) {
        Facility facility;
        facility.owner = rows.text(i, "owner");
        facility.allow = rows.json(i, "allow").get<std::vector<std::string>>();
        const std::string name = rows.text(i, "name");
        if (!is_for_jobs_of(facility, owner))
            disallowed[name] =
                "the facility " + in_quotes(name) + " is not for jobs of " + in_quotes(owner) + " any more";
    }
    return disallowed;
}

// `lock`: what SQL is to do to the job's row, or nothing.
Result<JobView> read_job_view(pg::Transaction& transaction, const std::string& id, const std::string& lock) {
    ATOLL_TRY(
        const pg::Rows rows,
        transaction.query(
            "SELECT spec, state, base_digest, current_round, records, spoiled, judged_until, created_by, by_admin FROM "
            "jobs WHERE id = $1" +
                lock,
            {id}));
    if (rows.empty()) return not_found("there is no job " + id, "id");
    JobView job;
    job.id = id;
    ATOLL_TRY(job.spec, read_job_spec(rows, id));
    ATOLL_TRY(job.state, parse_job_state(rows.text(0, "state")));
    job.base = rows.text(0, "base_digest");
    ATOLL_TRY(job.records, read_records(rows, 0));
    job.spoiled = rows.json(0, "spoiled");
    job.judged_until = rows.integer(0, "judged_until");
    ATOLL_RETURN_IF_ERROR(read_rounds(transaction, job, rows.integer(0, "current_round")));
    std::vector<std::string> rounds{std::to_string(job.round.number)};
    std::vector<std::string> parents;  // whose evaluations those of the closed rounds are compared with
    for (const Round& round : job.closed) {
        rounds.push_back(std::to_string(round.number));
        parents.push_back(std::to_string(round.parent));
    }
    ATOLL_TRY(job.tasks, load_tasks(transaction.connection(),
                                    "(t.job_id = $1 AND t.state IN ('pending', 'running')) OR "
                                    "(t.job_id = $1 AND (t.round = ANY ($2::integer[]) OR (t.kind = 'evaluate' AND "
                                    "t.round = ANY ($3::integer[]))))",
                                    {id, sql_array(rounds), sql_array(parents)}));
    for (const Task& task : job.tasks)
        if (!task.damage.empty() && is_finished(task.state))
            return internal_error("the job " + id + " cannot be read: task " + task.id + ": " + task.damage);
    if (!rows.boolean(0, "by_admin")) {
        ATOLL_TRY(job.disallowed, find_disallowed(transaction.connection(), job.spec, rows.text(0, "created_by")));
    }
    ATOLL_TRY(const auto facilities, silent_facilities(transaction.connection()));
    ATOLL_TRY(job.now_ms, database_now_ms(transaction.connection()));
    for (const auto& [facility, waiting] : facilities)  // later than now: written before the clock was set back
        job.waiting_since_ms[facility] = std::min(waiting.since_ms, job.now_ms);
    return job;
}

}  // namespace

Result<JobView> lock_job(pg::Transaction& transaction, const std::string& id) {
    return read_job_view(transaction, id, " FOR UPDATE");
}

Result<JobView> load_job(pg::Transaction& transaction, const std::string& id) {
    return read_job_view(transaction, id, "");
}

Status apply_decision(pg::Transaction& transaction, const Topics& topics, const JobView& job,
                      const JobDecision& decision) {
    if (decision.job_state)
        ATOLL_RETURN_IF_ERROR(transaction.query(
            std::string("UPDATE jobs SET state = $2, error = $3, ") +
                (is_finished(*decision.job_state)           ? "finished_at = now()"
                 : *decision.job_state == JobState::kPaused ? "paused_at = coalesce(paused_at, now())"
                                                            : "paused_at = NULL, finished_at = NULL, pruned = false") +
                " WHERE id = $1",
            {job.id, to_string(*decision.job_state), decision.job_error}));
    if (decision.spoiled)
        ATOLL_RETURN_IF_ERROR(
            transaction.query("UPDATE jobs SET spoiled = $2 WHERE id = $1", {job.id, *decision.spoiled}));
    if (decision.judged_until)
        ATOLL_RETURN_IF_ERROR(
            transaction.query("UPDATE jobs SET judged_until = $2 WHERE id = $1", {job.id, *decision.judged_until}));
    json::Json records = json::Json::object();
    for (const auto& [facility, record] : decision.records)
        records[facility] = {{"refusals", record.refusals},
                             {"reason", record.reason},
                             {"left_out", record.is_left_out},
                             {"counted_round", record.counted_round},
                             {"best_perplexity", record.best_perplexity},
                             {"best_round", record.best_round},
                             {"opposed_rounds", record.opposed_rounds}};
    if (!records.empty())
        ATOLL_RETURN_IF_ERROR(
            transaction.query("UPDATE jobs SET records = records || $2 WHERE id = $1", {job.id, std::move(records)}));
    for (const auto& round : decision.rounds) ATOLL_RETURN_IF_ERROR(save_round(transaction, job.id, round));
    for (const auto& [round, quiet] : decision.quiet_ends)
        ATOLL_RETURN_IF_ERROR(
            transaction.query("UPDATE rounds SET quiet_ends = $3, quiet_losses = $4 WHERE job_id = $1 AND number = $2",
                              {job.id, round, quiet.ends, quiet.losses}));
    std::vector<Task> tasks = decision.new_tasks;
    for (Task& task : tasks) {
        task.id = new_id();
        task.job = job.id;
    }
    ATOLL_RETURN_IF_ERROR(insert_tasks(transaction, tasks));
    ATOLL_RETURN_IF_ERROR(request_cancel(transaction, decision.cancelled_tasks, decision.reasons));
    ATOLL_RETURN_IF_ERROR(record_events(transaction, topics, job.id, decision.events));
    return send_again(transaction, topics, job.id, decision.repeats);
}

Status advance_job(pg::Transaction& transaction, const Topics& topics, const std::string& id) {
    JobView job;
    const auto decision = contained([&]() -> Result<JobDecision> {
        ATOLL_TRY(job, lock_job(transaction, id));
        return advance_job(job, job.now_ms);
    });
    if (decision.ok()) return apply_decision(transaction, topics, job, *decision);
    if (decision.error().code != ErrorCode::kInternal) return decision.error();
    return fail_unreadable_job(transaction, topics, id, describe(decision.error()));
}

Status advance_after_end(pg::Transaction& transaction, const Topics& topics, const Task& task) {
    // A round waits for its trainings, and once it is closed for its evaluations; others end without any effect.
    const std::string round =
        std::string("job_id = $1 AND number = $2 AND ") +
        (task.kind() == TaskKind::kTrain ? "state = 'training'" : "state = 'closed' AND NOT evaluated");
    const std::string is_quiet = "quiet_ends > 0 AND quiet_losses >= $3";
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("WITH counted AS (UPDATE rounds SET quiet_ends = quiet_ends - 1, quiet_losses = "
                                "quiet_losses - $3 WHERE " +
                                    round + " AND " + is_quiet + ") SELECT 1 FROM rounds WHERE " + round +
                                    " AND NOT (" + is_quiet + ")",
                                {task.job, task.round, task.state == TaskState::kDone ? 0 : 1}));
    return rows.empty() ? Status() : advance_job(transaction, topics, task.job);
}

Status fail_unreadable_job(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                           const std::string& why) {
    ATOLL_TRY(const pg::Rows jobs, transaction.query("SELECT name, current_round FROM jobs WHERE id = $1 AND state IN "
                                                     "('running', 'paused') FOR UPDATE",
                                                     {id}));
    if (jobs.empty()) return {};
    ATOLL_RETURN_IF_ERROR(
        transaction.query("UPDATE rounds SET state = 'failed', error = $2, closed_at = now() WHERE "
                          "job_id = $1 AND state IN ('training', 'aggregating')",
                          {id, why}));
    ATOLL_TRY(const pg::Rows tasks,
              transaction.query("SELECT id, facility FROM tasks WHERE job_id = $1 AND kind <> 'clean'", {id}));
    JobDecision decision;
    decision.job_state = JobState::kFailed;
    decision.job_error = why;
    std::set<std::string> facilities;
    for (int i = 0; i < tasks.size(); ++i) {
        decision.cancelled_tasks.push_back(tasks.text(i, "id"));
        if (!facilities.insert(tasks.text(i, "facility")).second) continue;
        decision.new_tasks.push_back(cleaning_task(tasks.text(i, "facility")));
        decision.new_tasks.back().round = jobs.integer(0, "current_round");
    }
    decision.events.push_back(
        {"atoll.job.failed.v1",
         {{"job", id}, {"name", jobs.text(0, "name")}, {"round", jobs.integer(0, "current_round")}, {"error", why}}});
    JobView job;
    job.id = id;
    return apply_decision(transaction, topics, job, decision);
}

Status claim_output_model(pg::Transaction& transaction, const std::string& model) {
    // Of two submissions at the same moment the second waits here for the first.
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT pg_advisory_xact_lock(hashtextextended('output_model/' || $1, 0))", {model}));
    return require_unwritten(transaction.connection(), model);
}

Status require_unwritten(pg::Connection& connection, const std::string& model) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT id, name FROM jobs WHERE state IN ('running', 'paused') AND "
                               "spec->>'output_model' = $1 LIMIT 1",
                               {model}));
    if (rows.empty()) return {};
    return conflict("the job \"" + rows.text(0, "name") + "\" (" + rows.text(0, "id") + ") is writing the model \"" +
                        model + "\"; give this job an output_model of its own, or wait until that one has ended",
                    "output_model");
}

Status require_room(pg::Transaction& transaction, const std::string& owner, std::int64_t active_max,
                    const std::string& except) {
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT pg_advisory_xact_lock(hashtextextended('active/' || $1, 0))", {owner}));
    ATOLL_TRY(
        const pg::Rows rows,
        transaction.query(
            "SELECT count(*) AS n FROM (SELECT id FROM jobs WHERE created_by = $1 AND state IN ('running', "
            "'paused') UNION SELECT coalesce(t.job_id, t.preparation_id) FROM tasks t JOIN facilities f ON f.name "
            "= t.facility LEFT JOIN jobs j ON j.id = t.job_id LEFT JOIN preparations p ON p.id = "
            "t.preparation_id WHERE t.state IN ('pending', 'running') AND f.waiting_since IS NULL AND "
            // What a site takes long to end or to remove is not its owner's doing.
            "(t.kind <> 'clean' OR t.created_at > now() - interval '10 minutes') AND "
            "(j.finished_at IS NULL OR j.finished_at > now() - interval '10 minutes') AND "
            "coalesce(j.created_by, p.created_by) = $1) AS active WHERE id <> $2",
            {owner, except}));
    if (rows.integer(0, "n") < active_max) return {};
    return Error{ErrorCode::kResourceExhausted,
                 rows.text(0, "n") + " jobs and preparations of " + owner +
                     " have not ended or are being cleaned up after; wait for some of them, or cancel some "
                     "(dispatch.operator_active_max says how many one operator may have)",
                 {}};
}

Result<std::int64_t> count_jobs(pg::Transaction& transaction, const std::string& owner) {
    ATOLL_TRY(const pg::Rows rows, transaction.query("SELECT count(*) AS n FROM jobs WHERE created_by = $1", {owner}));
    return rows.integer(0, "n");
}

Status insert_job(pg::Transaction& transaction, const Topics& topics, const JobView& job, const std::string& created_by,
                  bool by_admin) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by, by_admin) VALUES ($1, $2, "
        "$3, $4, 'running', 0, $5, $6)",
        {job.id, job.spec.name, to_json(job.spec), job.base, created_by, by_admin}));
    ATOLL_TRY(const std::int64_t now_ms, database_now_ms(transaction.connection()));
    return apply_decision(transaction, topics, job, submit_job(job, now_ms));
}

Result<std::vector<std::string>> late_jobs(pg::Connection& connection) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT DISTINCT r.job_id FROM rounds r JOIN jobs j ON j.id = r.job_id AND j.state = "
                               "'running' WHERE (r.state = 'training' AND r.deadline_at <= now()) OR "
                               "(r.state = 'aggregating' AND (r.ask_again_at <= now() OR r.ask_again_at > " +
                               std::string(pg::kBeyondAnyPause) +
                               ")) OR (r.state = 'closed' AND NOT r.evaluated AND r.evaluate_by <= now()) ORDER BY 1"));
    std::vector<std::string> ids;
    for (int i = 0; i < rows.size(); ++i) ids.push_back(rows.text(i, "job_id"));
    return ids;
}

Result<std::vector<RoundInAggregation>> rounds_in_aggregation(pg::Connection& connection) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query("SELECT r.job_id, r.number, r.waiting_reason, " + sql_to_ms("r.waiting_since") +
                         " AS since_ms, " + sql_to_ms("r.next_try_at") + " AS next_ms, " + sql_to_ms("now()") +
                         " AS now_ms, coalesce(" + sql_to_ms("r.ask_again_at") + ", " + sql_to_ms("now()") +
                         ") AS ask_again_ms, (SELECT coalesce(min(" + sql_to_ms("(o.event->>'time')::timestamptz") +
                         "), 0) FROM outbox o WHERE o.key = r.job_id) AS oldest_ms FROM rounds r JOIN jobs j ON "
                         "j.id = r.job_id AND j.state = 'running' WHERE r.state = 'aggregating'"));
    std::vector<RoundInAggregation> rounds;
    for (int i = 0; i < rows.size(); ++i) {
        RoundInAggregation round{rows.text(i, "job_id"),   rows.integer(i, "number"), 0, 0, {},
                                 rows.integer(i, "now_ms")};
        round.told_ms =
            std::max<std::int64_t>(round.now_ms - rows.integer(i, "ask_again_ms") + kAggregationPatience_s * 1000, 0);
        if (const std::int64_t oldest_ms = rows.integer(i, "oldest_ms"); oldest_ms > 0)
            round.unsent_ms = round.now_ms - oldest_ms;
        if (!rows.is_null(i, "since_ms"))
            round.waiting =
                Waiting{rows.text(i, "waiting_reason"), rows.integer(i, "since_ms"), rows.integer(i, "next_ms")};
        rounds.push_back(std::move(round));
    }
    return rounds;
}

Status set_round_waiting(pg::Connection& connection, const RoundInAggregation& round,
                         const std::optional<Waiting>& waiting) {
    if (waiting == round.waiting) return {};
    if (!waiting) {
        ATOLL_RETURN_IF_ERROR(
            connection.query("UPDATE rounds SET waiting_reason = '', waiting_since = NULL, next_try_at = NULL WHERE "
                             "job_id = $1 AND number = $2",
                             {round.job, round.number}));
        return {};
    }
    ATOLL_RETURN_IF_ERROR(connection.query(
        "UPDATE rounds SET waiting_reason = $3, waiting_since = " + sql_from_ms("$4") +
            ", next_try_at = " + sql_from_ms("$5") + " WHERE job_id = $1 AND number = $2 AND state = 'aggregating'",
        {round.job, round.number, waiting->reason, waiting->since_ms, waiting->next_ms}));
    return {};
}

}  // namespace atl::dispatch
