#include "services/dispatch/db/federation.h"

#include <algorithm>
#include <map>

#include "services/dispatch/db/sql.h"
#include "services/dispatch/db/tasks.h"

namespace atl::dispatch {
namespace {

using metrics::Sample;

// Of jobs and trainings that run at once, so many have series of their own at most.
constexpr std::int64_t kTrainingsMax = 500;

constexpr const char* kNewestAttempt =
    " LEFT JOIN LATERAL (SELECT step, progress FROM attempts WHERE task_id = t.id ORDER BY number DESC LIMIT 1) a ON "
    "true ";

Status read_tasks(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            std::string(
                "SELECT facility, kind, state, reason, count(*) AS n FROM (SELECT t.facility, t.kind, "
                "CASE WHEN t.state = 'pending' THEN 'pending' ELSE coalesce(a.step, 'pending') END AS state, "
                "CASE WHEN f.waiting_since IS NOT NULL THEN 'unreachable' "
                "WHEN f.batch_silent_since IS NOT NULL THEN 'batch-system' "
                "WHEN j.state = 'paused' THEN 'paused' "
                "WHEN jsonb_typeof(a.progress->'waiting') = 'object' THEN 'obstacle' "
                "WHEN coalesce((a.progress->>'not_ready_since_ms')::bigint, 0) > 0 THEN 'no-room' "
                "WHEN coalesce(a.progress->>'queue_reason', '') <> '' THEN 'queue' ELSE '' END AS reason "
                "FROM tasks t LEFT JOIN facilities f ON f.name = t.facility LEFT JOIN jobs j ON j.id = t.job_id") +
            kNewestAttempt +
            "WHERE t.state IN ('pending', 'running')) AS unfinished GROUP BY facility, kind, state, reason"));
    std::map<metrics::Labels, double> tasks, waiting;
    for (int i = 0; i < rows.size(); ++i) {
        const double count = static_cast<double>(rows.integer(i, "n"));
        const std::string facility = rows.text(i, "facility"), reason = rows.text(i, "reason");
        tasks[{{"facility", facility}, {"kind", rows.text(i, "kind")}, {"state", rows.text(i, "state")}}] += count;
        if (!reason.empty()) waiting[{{"facility", facility}, {"reason", reason}}] += count;
    }
    for (const auto& [labels, count] : tasks) state.tasks.push_back({labels, count});
    for (const auto& [labels, count] : waiting) state.waiting.push_back({labels, count});
    return {};
}

Status read_rounds(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query(
                  "WITH open AS (SELECT CASE r.state WHEN 'closed' THEN 'evaluating' ELSE r.state END AS phase, "
                  "extract(epoch FROM now() - coalesce(r.closed_at, r.opened_at))::float8 AS age_s FROM jobs j JOIN "
                  "rounds r ON r.job_id = j.id AND r.number >= j.current_round - 10 WHERE j.state = 'running' AND "
                  "r.state IN ('training', 'aggregating', 'closed') AND NOT r.evaluated) "
                  "SELECT phase, count(age_s) AS n, coalesce(max(age_s), 0) AS age_s FROM (VALUES ('training'), "
                  "('aggregating'), ('evaluating')) AS each (phase) LEFT JOIN open USING (phase) GROUP BY phase"));
    for (int i = 0; i < rows.size(); ++i) {
        const metrics::Labels phase = {{"phase", rows.text(i, "phase")}};
        state.rounds.push_back({phase, static_cast<double>(rows.integer(i, "n"))});
        state.round_ages_s.push_back({phase, rows.number(i, "age_s")});
    }
    // A minute at least: what lasts seconds may last thrice as long. Of a job's first round nothing is known: it is
    // held against eight hours.
    ATOLL_TRY(const pg::Rows ratio,
              connection.query(
                  "SELECT coalesce(max(extract(epoch FROM now() - r.opened_at) / greatest(60, coalesce(usual.s, "
                  "28800))), 0)::float8 AS "
                  "ratio FROM jobs j JOIN rounds r ON r.job_id = j.id AND r.number = j.current_round CROSS JOIN "
                  "LATERAL (SELECT avg(s) AS s FROM (SELECT extract(epoch FROM p.closed_at - p.opened_at) AS s FROM "
                  "rounds p WHERE p.job_id = j.id AND p.number > 0 AND p.number < r.number AND p.state = 'closed' "
                  "ORDER BY p.number DESC LIMIT 5) AS last) AS usual "
                  "WHERE j.state = 'running' AND r.state IN ('training', 'aggregating')"));
    state.round_age_ratio = ratio.number(0, "ratio");
    return {};
}

Status read_facilities(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT name, waiting_since IS NULL AS up, batch_silent_since IS NULL AS batch_up, "
                               "coalesce(extract(epoch FROM now() - waiting_since), 0)::float8 AS silent_s "
                               "FROM facilities"));
    for (int i = 0; i < rows.size(); ++i) {
        const metrics::Labels facility = {{"facility", rows.text(i, "name")}};
        state.facilities_up.push_back({facility, rows.boolean(i, "up") ? 1.0 : 0.0});
        state.batch_systems_up.push_back({facility, rows.boolean(i, "batch_up") ? 1.0 : 0.0});
        state.facilities_silent_s.push_back({facility, rows.number(i, "silent_s")});
    }
    return {};
}

// What a worker would take if one were free, by the workers' own rule: not what a paused job would begin, nor what
// waits for its facility.
Status read_due_tasks(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "SELECT count(*) AS n, coalesce(extract(epoch FROM now() - min(t.next_step_at)), 0)::float8 AS age_s "
            "FROM tasks t " +
            task_leases().joins + " WHERE t.next_step_at < now() AND t.lease_until < now() AND " + task_leases().due));
    state.due_tasks = static_cast<double>(rows.integer(0, "n"));
    state.due_task_age_s = rows.number(0, "age_s");
    return {};
}

Status read_trainings(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT t.facility, j.name, a.progress->'last_step' AS newest FROM tasks t JOIN jobs j "
                               "ON j.id = t.job_id" +
                                   std::string(kNewestAttempt) +
                                   "WHERE t.kind = 'train' AND t.state = 'running' AND a.step = 'running' AND "
                                   "jsonb_typeof(a.progress->'last_step') = 'object' LIMIT $1",
                               {kTrainingsMax}));
    for (int i = 0; i < rows.size(); ++i)
        if (const auto line = parse_step_line(rows.json(i, "newest")))
            state.trainings.push_back({rows.text(i, "facility"), rows.text(i, "name"), *line});
    return {};
}

Status read_perplexities(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "SELECT DISTINCT ON (j.name, t.facility, dataset) t.facility, j.name, coalesce(t.result->>'dataset', '') "
            "AS dataset, "
            "(model->>'perplexity')::float8 AS perplexity FROM jobs j JOIN tasks t ON t.job_id = j.id AND t.round >= "
            "j.current_round - 2 CROSS JOIN "
            "LATERAL jsonb_array_elements(t.result->'evaluations') AS model WHERE j.state = 'running' AND t.kind = "
            "'evaluate' AND t.state = 'done' AND model->>'which' IN ('base', 'global') AND "
            "model->>'perplexity' IS NOT NULL ORDER BY j.name, t.facility, dataset, t.round DESC LIMIT $1",
            {kTrainingsMax}));
    for (int i = 0; i < rows.size(); ++i)
        state.perplexities.push_back({{{"facility", rows.text(i, "facility")},
                                       {"atoll_job", rows.text(i, "name")},
                                       {"dataset", rows.text(i, "dataset")}},
                                      rows.number(i, "perplexity")});
    return {};
}

// A job without a closed round is left out.
Status read_expected_ends(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "SELECT j.name, max(extract(epoch FROM greatest(now(), r.opened_at + ((j.spec->>'rounds')::int - "
            "r.index + 1) * usual.length)))::float8 AS end_s FROM jobs j JOIN rounds r ON r.job_id = j.id AND "
            "r.number = j.current_round CROSS JOIN LATERAL (SELECT avg(length) AS length FROM (SELECT "
            "p.closed_at - p.opened_at AS length FROM rounds p WHERE p.job_id = j.id AND p.number > 0 AND p.state "
            "= 'closed' ORDER BY p.number DESC LIMIT 5) AS last) AS usual WHERE j.state = 'running' AND "
            "usual.length IS NOT NULL GROUP BY j.name ORDER BY 1 LIMIT $1",
            {kTrainingsMax}));
    for (int i = 0; i < rows.size(); ++i)
        state.expected_ends_s.push_back({{{"atoll_job", rows.text(i, "name")}}, rows.number(i, "end_s")});
    return {};
}

Status read_job_rounds(pg::Connection& connection, FederationState& state) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT name, max(current_round) AS round FROM jobs WHERE state = "
                                                    "'running' GROUP BY name ORDER BY 1 LIMIT $1",
                                                    {kTrainingsMax}));
    for (int i = 0; i < rows.size(); ++i)
        state.job_rounds.push_back(
            {{{"atoll_job", rows.text(i, "name")}}, static_cast<double>(rows.integer(i, "round"))});
    return {};
}

}  // namespace

Result<std::vector<EndedJob>> ended_jobs(pg::Connection& connection, std::int64_t since_ms) {
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "SELECT id, state, (extract(epoch FROM finished_at) * 1000)::bigint AS finished_ms FROM "
            "jobs WHERE state IN ('completed', 'failed', 'cancelled') AND NOT pruned AND finished_at > greatest(" +
                sql_from_ms("$1") + ", now() - interval '10 minutes')",
            {since_ms}));
    std::vector<EndedJob> jobs;
    for (int i = 0; i < rows.size(); ++i)
        jobs.push_back({rows.text(i, "id"), rows.integer(i, "finished_ms"), rows.text(i, "state")});
    return jobs;
}

Result<std::vector<EndedPhase>> ended_phases(pg::Connection& connection, std::int64_t since_ms) {
    const std::string since = "greatest(" + sql_from_ms("$1") + ", now() - interval '10 minutes')";
    ATOLL_TRY(const pg::Rows rows,
              connection.query(
                  "SELECT r.job_id, r.number, phase, extract(epoch FROM ended - begun)::float8 AS s FROM rounds r "
                  "CROSS JOIN LATERAL (VALUES ('training', opened_at, aggregating_at), ('aggregating', aggregating_at, "
                  "CASE WHEN state = 'closed' THEN closed_at END), ('evaluating', closed_at, evaluated_at)) AS each "
                  "(phase, begun, ended) WHERE greatest(aggregating_at, closed_at, evaluated_at) > " +
                      since + " AND r.number > 0 AND ended > " + since + " AND begun IS NOT NULL ORDER BY ended",
                  {since_ms}));
    std::vector<EndedPhase> phases;
    for (int i = 0; i < rows.size(); ++i)
        phases.push_back({rows.text(i, "job_id"), rows.integer(i, "number"), rows.text(i, "phase"),
                          std::max(rows.number(i, "s"), 0.0)});
    return phases;
}

Result<std::vector<UpdateCount>> count_updates(pg::Connection& connection, const std::string& job, std::int64_t round) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query(
                  "SELECT t.facility, CASE WHEN r.accepted ? t.id THEN 'accepted' WHEN r.refused @> "
                  "jsonb_build_array(jsonb_build_object('task', t.id)) THEN 'refused' ELSE 'missing' END AS outcome, "
                  "count(*) AS n FROM rounds r JOIN tasks t ON t.job_id = r.job_id AND t.round = r.number AND t.kind = "
                  "'train' WHERE r.job_id = $1 AND r.number = $2 GROUP BY 1, 2",
                  {job, round}));
    std::vector<UpdateCount> counts;
    for (int i = 0; i < rows.size(); ++i)
        counts.push_back({rows.text(i, "facility"), rows.text(i, "outcome"), rows.integer(i, "n")});
    return counts;
}

Result<FederationState> read_federation_state(pg::Connection& connection) {
    FederationState state;
    for (const auto read : {read_tasks, read_rounds, read_facilities, read_due_tasks, read_trainings, read_perplexities,
                            read_expected_ends, read_job_rounds})
        ATOLL_RETURN_IF_ERROR(read(connection, state));
    return state;
}

}  // namespace atl::dispatch
