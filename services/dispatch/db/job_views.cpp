#include "services/dispatch/db/job_views.h"

#include <algorithm>
#include <ctime>
#include <map>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/db/sql.h"
#include "services/dispatch/db/tasks.h"

namespace atl::dispatch {
namespace {

using json::Json;

// What a list shows of a job; of the specification, which may be long, two members.
//
// `waits`: what its unfinished tasks wait for, one entry a facility and reason: what is in the way of everything at the
// facility, or else of the task, or what its batch job waits for in the queue. A task that is being cancelled is among
// them as long as its batch job may run. Where nothing stands in its way its batch system need not have been told yet.
const std::string kWaitsColumn =
    "(SELECT jsonb_agg(one ORDER BY one->>'facility', one->>'reason') FROM (SELECT jsonb_build_object('facility', "
    "w.facility, 'reason', w.reason, 'cancelling', w.cancelling, 'since', " +
    pg::rfc3339("min(w.since)") +
    ") AS one FROM (SELECT t.facility, t.cancel_requested AS cancelling, CASE WHEN NOT t.cancel_requested THEN why "
    "WHEN a.step = 'submitting' AND a.progress->'waiting'->>'since_ms' = a.progress->>'no_queue_since_ms' THEN 'it is "
    "being cancelled; no batch job of it is in the queue' WHEN why IS NOT NULL THEN 'its batch job is being cancelled "
    "and may still run: ' || why WHEN j.finished_at IS NOT "
    "NULL THEN 'its batch job is about to be cancelled' END AS reason, coalesce(f.waiting_since, "
    "f.batch_silent_since, "
    "to_timestamp((a.progress->'waiting'->>'since_ms')::bigint "
    "/ 1000.0), CASE WHEN t.cancel_requested THEN j.finished_at ELSE to_timestamp(nullif("
    "a.progress->>'queue_reason_since_ms', '0')::bigint / 1000.0) END, t.created_at) AS since FROM tasks t JOIN "
    "facilities f ON f.name = t.facility LEFT JOIN LATERAL (SELECT step, progress FROM attempts WHERE task_id = t.id "
    "ORDER BY number DESC LIMIT 1) a ON true CROSS JOIN LATERAL (SELECT coalesce(nullif(f.waiting_reason, ''), "
    "nullif(f.batch_silence, ''), a.progress->'waiting'->>'reason', CASE WHEN a.step IN ('queued', 'running') AND NOT "
    "t.cancel_requested THEN nullif(a.progress->>'queue_reason', '') END) AS why) AS trouble WHERE t.job_id = j.id AND "
    "t.kind <> 'clean' AND t.state IN ('pending', 'running') AND (NOT t.cancel_requested OR a.step IN ('submitting', "
    "'queued', 'running') OR "
    "a.progress->>'continuation' <> '')) AS w WHERE w.reason IS NOT NULL GROUP BY w.facility, w.reason, w.cancelling "
    "ORDER BY 1 LIMIT 20) AS each)";
const std::string kJobColumns =
    "j.id, j.name, jsonb_build_object('rounds', j.spec->'rounds', 'output_model', j.spec->'output_model') AS shown, "
    "j.base_digest, j.state, j.current_round, j.error, j.spoiled, j.created_by, " +
    pg::rfc3339("j.created_at") + " AS created_at, " + pg::rfc3339("j.finished_at") +
    " AS finished_at, coalesce((SELECT version_digest FROM rounds r WHERE r.job_id = j.id AND r.state = 'closed' "
    "AND r.error = '' AND (j.spoiled = 'null' OR r.number <= (j.spoiled->>'good_round')::integer) ORDER BY number DESC "
    "LIMIT 1), '') AS version, coalesce((SELECT index FROM rounds r WHERE r.job_id = j.id AND "
    "r.number = j.current_round), j.current_round) AS index, " +
    kWaitsColumn + " AS waits";
// What stands in the way of a round's aggregation, as waiting_view() shows it; null: nothing.
const std::string kRoundWaiting =
    "CASE WHEN r.state = 'aggregating' AND r.waiting_since IS NOT NULL THEN jsonb_build_object('reason', "
    "r.waiting_reason, 'since', " +
    pg::rfc3339("r.waiting_since") + ", 'next_try', " + pg::rfc3339("r.next_try_at") + ") END";
// One job whole, with its tasks over all rounds as {"train": {"done": 2, …}, …}; cleaning up is not shown. One
// statement, so that it is one state of the job.
const std::string kJobQuery =
    "SELECT j.spec, j.records, " + kJobColumns +
    ", (SELECT jsonb_object_agg(kind, states) FROM (SELECT kind, jsonb_object_agg(state, n) AS states FROM "
    "(SELECT kind, state, count(*) AS n FROM tasks WHERE job_id = j.id AND state IN ('pending', 'running') AND kind "
    "<> 'clean' GROUP BY kind, state UNION ALL SELECT kind, state, count FROM ended_tasks WHERE owner = j.id AND kind "
    "<> 'clean') AS counts GROUP BY kind) AS kinds) AS tasks, (SELECT jsonb_agg(jsonb_build_object('facility', f.name, "
    "'reason', coalesce(nullif(f.waiting_reason, ''), f.batch_silence), 'since', " +
    pg::rfc3339("coalesce(f.waiting_since, f.batch_silent_since)") + ", 'next_try', " +
    pg::rfc3339("coalesce(f.retry_at, f.waiting_since, now() + interval '30 s')") +
    ") ORDER BY f.name) FROM facilities f WHERE (f.waiting_since IS NOT NULL OR f.batch_silent_since IS NOT NULL) AND "
    "EXISTS (SELECT 1 FROM tasks t WHERE "
    "t.facility = f.name AND t.job_id = j.id AND t.kind <> 'clean' AND t.state IN ('pending', 'running'))) AS waiting, "
    "(SELECT " +
    kRoundWaiting +
    " FROM rounds r WHERE r.job_id = j.id AND r.number = j.current_round) AS aggregation_waiting "
    "FROM jobs j WHERE j.id = $1";

Json text_or_null(const pg::Rows& rows, int row, const char* column) {
    return rows.is_null(row, column) ? Json() : Json(rows.text(row, column));
}

// Null where a row has been damaged and there is no such member.
const Json& find_member(const Json& object, const char* key) {
    static const Json kNone;
    const auto found = object.find(key);
    return found == object.end() ? kNone : *found;
}

// A job whose specification cannot be read is shown too, with the reason as its error.
Json read_job(const pg::Rows& rows, int row) {
    const Json spec = rows.json(row, "shown");
    json::ObjectReader reader(spec);
    const std::int64_t rounds = reader.required_integer("rounds", 0, INT64_MAX);
    std::string output_model = reader.required_string("output_model");
    if (output_model.empty()) output_model = rows.text(row, "name");  // its default
    reader.allow_unknown();
    const Status read = reader.finish();
    return {{"id", rows.text(row, "id")},
            {"name", rows.text(row, "name")},
            {"state", rows.text(row, "state")},
            {"round", rows.integer(row, "current_round")},
            {"index", rows.integer(row, "index")},
            {"rounds", rounds},
            {"error", read.ok() ? rows.text(row, "error") : "the job cannot be read: " + describe(read.error())},
            {"base", rows.text(row, "base_digest")},
            {"output_model", output_model},
            {"version", rows.text(row, "version")},
            {"spoiled", rows.json(row, "spoiled")},
            {"waits", rows.is_null(row, "waits") ? Json::array() : rows.json(row, "waits")},
            {"created_by", rows.text(row, "created_by")},
            {"created_at", rows.text(row, "created_at")},
            {"finished_at", text_or_null(rows, row, "finished_at")}};
}

// Who trains for the job, and who no more; none where the row has been damaged.
Json participants_view(const pg::Rows& rows, const Json& spec) {
    JobView job;
    auto parsed = parse_job_spec(spec, JobSource::kDatabase);
    auto records = read_records(rows, 0);
    if (!parsed.ok() || !records.ok()) return Json::array();
    job.spec = std::move(parsed).value();
    job.records = std::move(records).value();
    Json participants = Json::array();
    for (const auto& participant : job.spec.participants) {
        const std::string& facility = participant.data.facility;
        const Record record = job.records[facility];
        participants.push_back({{"facility", facility},
                                {"state", record.is_left_out              ? "left_out"
                                          : is_quarantined(job, facility) ? "quarantined"
                                                                          : "active"},
                                {"refusals", record.refusals},
                                {"reason", record.reason}});
    }
    return participants;
}

Json view_of_job(const pg::Rows& rows) {
    Json spec = rows.json(0, "spec");
    Json view = read_job(rows, 0);
    view["participants"] = participants_view(rows, spec);
    view["spec"] = std::move(spec);
    view["waiting"] = rows.is_null(0, "waiting") ? Json::array() : rows.json(0, "waiting");
    if (!rows.is_null(0, "aggregation_waiting")) view["aggregation_waiting"] = rows.json(0, "aggregation_waiting");
    view["tasks"] = rows.is_null(0, "tasks") ? Json::object() : rows.json(0, "tasks");
    return view;
}

// Why a batch job waits, and since when for that, where it does.
void add_queue_reason(Json& view, const Task& task) {
    if (!task.attempt || task.attempt->queue_reason.empty()) return;
    if (task.attempt->step != Step::kQueued && task.attempt->step != Step::kRunning) return;
    view["queue_reason"] = task.attempt->queue_reason;
    view["queue_reason_since"] = utc_text(task.attempt->queue_reason_since_ms);
}

// A round that is open when its job ends has ended with it.
const std::string kShownState =
    "CASE WHEN r.state IN ('training', 'aggregating') AND j.state IN ('failed', 'cancelled') THEN j.state ELSE r.state "
    "END";

using WaitingFacilities = std::map<std::string, Waiting>;  // those that cannot be worked with

// What stands in the way of a task's next step, or of its continuation, where something does: in the way of everything
// at its facility, or else of this task alone.
void add_waiting(Json& view, const Task& task, const WaitingFacilities& facilities) {
    if (is_finished(task.state)) return;
    std::optional<Waiting> waiting = task.attempt ? task.attempt->waiting : std::nullopt;
    if (!waiting && may_run(task)) waiting = task.attempt->continuation_waiting;
    if (const auto at = facilities.find(task.facility); at != facilities.end()) waiting = at->second;
    if (waiting) view["waiting"] = waiting_view(waiting);
}

// Why attempts ended that another one has followed, by task: [{attempt, last_step, error}], the newest of them. Of the
// tasks t that `which` names.
using EarlierAttempts = std::map<std::string, Json>;

Result<EarlierAttempts> earlier_attempts(pg::Connection& connection, const std::string& which,
                                         const std::vector<pg::Param>& parameters) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT task_id, number, error, last_step FROM (SELECT a.task_id, a.number, a.error, "
                               "coalesce((a.progress->'last_step'->>'step')::bigint, 0) AS last_step, row_number() "
                               "OVER (PARTITION BY a.task_id ORDER BY a.number DESC) AS place FROM attempts a JOIN "
                               "tasks t ON t.id = a.task_id WHERE " +
                                   which +
                                   ") AS each WHERE place > 1 AND place <= 9 AND error <> '' ORDER BY task_id, number",
                               parameters));
    EarlierAttempts earlier;
    for (int i = 0; i < rows.size(); ++i)
        earlier[rows.text(i, "task_id")].push_back({{"attempt", rows.integer(i, "number")},
                                                    {"last_step", rows.integer(i, "last_step")},
                                                    {"error", rows.text(i, "error")}});
    return earlier;
}

// The phases of the newest attempt, as far as somebody saw them; the last of them lasts while its `ended_at` is null.
Json phases_view(const Attempt& attempt) {
    Json phases = Json::array();
    const auto add = [&](Step step, std::int64_t began_ms, const Json& ended_at, std::int64_t bytes) {
        phases.push_back(
            {{"phase", to_string(step)}, {"began_at", utc_text(began_ms)}, {"ended_at", ended_at}, {"bytes", bytes}});
    };
    for (const auto& [step, began_ms, ended_ms, bytes] : attempt.phases)
        if (ended_ms != 0) add(step, began_ms, utc_text(ended_ms), bytes);
    if (is_phase(attempt.step) && attempt.since_ms != 0)
        add(attempt.step, attempt.since_ms, nullptr, attempt.bytes_done);
    return phases;
}

Json task_view(const Task& task, const WaitingFacilities& facilities) {
    Json view = {{"id", task.id},
                 {"kind", to_string(task.kind())},
                 {"facility", task.facility},
                 {"state", to_string(task.state)},
                 {"error", task.error},
                 {"attempt", nullptr}};
    add_waiting(view, task, facilities);
    add_queue_reason(view, task);
    if (task.attempt) {
        const Attempt& attempt = *task.attempt;
        view["attempt"] = attempt.number;
        view["step"] = to_string(attempt.step);
        view["batch_id"] = attempt.batch_id;
        if (attempt.exit_code) view["exit_code"] = *attempt.exit_code;
        view["attempt_error"] = attempt.error;
        if (attempt.bytes_total > 0)
            view["moving"] = {{"bytes_done", attempt.bytes_done}, {"bytes_total", attempt.bytes_total}};
        view["phases"] = phases_view(attempt);
        if (attempt.last_step) view["progress"] = to_json(*attempt.last_step);
        if (attempt.begun_at_step > 0) view["first_step"] = attempt.begun_at_step;
    }
    if (const auto* train = std::get_if<TrainParams>(&task.params)) view["dataset"] = train->dataset;
    if (const auto* evaluate = std::get_if<EvaluateParams>(&task.params)) {
        view["dataset"] = evaluate->dataset;
        view["models"] = evaluate->models.size();
        view["models_done"] = task.attempt ? task.attempt->results.size() : 0;
    }
    if (task.kind() == TaskKind::kTrain && task.state == TaskState::kDone)
        for (const char* key : {"version", "samples", "tokens", "metrics"})
            if (const Json& value = find_member(task.result, key); !value.is_null()) view[key] = value;
    return view;
}

// Answers about jobs that are kept, and the longest of them.
constexpr std::size_t kKeptMax = 100;
constexpr std::size_t kKeptBytesMax = 64 << 10;

// Tasks and evaluations of a page of rounds, each some 700 bytes: more would only be read to be left out.
constexpr std::int64_t kPageEntriesMax = kRoundsBytesMax / 700;

// How many rounds of a job make a page, at most.
std::int64_t rounds_of_page(const JobSpec& spec, std::int64_t limit) {
    const auto participants = static_cast<std::int64_t>(spec.participants.size());
    const auto sites = static_cast<std::int64_t>(spec.evaluation_copies.size());
    const std::int64_t models = spec.evaluate_updates ? participants + 1 : 1;
    return std::clamp<std::int64_t>(kPageEntriesMax / (participants + sites * (1 + models)), 1, limit);
}

// What a page of rounds shows of the tasks of one.
struct RoundTasks {
    Json::array_t tasks;
    Json::array_t evaluations;
    std::vector<const Task*> evaluating;
};

// What the aggregation made of updates, by task.
struct Updates {
    std::map<std::string, std::string> refused;  // why they were left out
    std::map<std::string, Json> contributions;   // what of them is in the round's model
};

void add_contributions(Updates& updates, const Json& list) {
    for (const Json& one : list) {
        Json figures = Json::object();
        for (const char* key : {"share", "norm", "cosine", "counted", "control_variate_norm", "control_variate_counted",
                                "opposed_rounds"})
            if (const Json& number = find_member(one, key); number.is_number()) figures[key] = number;
        if (const Json& task = find_member(one, "task"); task.is_string())
            updates.contributions[task.get<std::string>()] = std::move(figures);
    }
}

std::map<std::int64_t, RoundTasks> tasks_by_round(const std::vector<Task>& tasks, const Updates& updates,
                                                  const WaitingFacilities& facilities, const EarlierAttempts& earlier) {
    std::map<std::int64_t, RoundTasks> rounds;
    for (const Task& task : tasks) {
        RoundTasks& round = rounds[task.round];
        Json view = task_view(task, facilities);
        if (const auto at = earlier.find(task.id); at != earlier.end()) view["earlier_attempts"] = at->second;
        if (task.kind() == TaskKind::kTrain) {
            const auto at = updates.refused.find(task.id);
            view["refused"] = at != updates.refused.end();
            if (at != updates.refused.end()) view["error"] = "the update was left out: " + at->second;
            const auto made = updates.contributions.find(task.id);
            if (made != updates.contributions.end()) view["contribution"] = made->second;
        }
        round.tasks.push_back(std::move(view));
        if (task.kind() == TaskKind::kEvaluate) round.evaluating.push_back(&task);
        if (task.kind() != TaskKind::kEvaluate || task.state != TaskState::kDone) continue;
        for (Json item : find_member(task.result, "evaluations")) {
            if (!item.is_object()) continue;
            item["facility"] = task.facility;
            item["dataset"] = find_member(task.result, "dataset");
            round.evaluations.push_back(std::move(item));
        }
    }
    return rounds;
}

Json round_item(const pg::Rows& rows, int row, RoundTasks& round) {
    Json view = {{"round", rows.integer(row, "number")},
                 {"index", rows.integer(row, "index")},
                 {"state", rows.text(row, "state")},
                 {"base", rows.text(row, "base_digest")},
                 {"version", rows.text(row, "version_digest")},
                 {"evaluated", rows.boolean(row, "evaluated")},
                 {"error", rows.text(row, "error")},
                 {"opened_at", rows.text(row, "opened_at")},
                 {"aggregating_at", text_or_null(rows, row, "aggregating_at")},
                 {"closed_at", text_or_null(rows, row, "closed_at")},
                 {"evaluated_at", text_or_null(rows, row, "evaluated_at")},
                 {"deadline_at", text_or_null(rows, row, "deadline_at")},
                 {"evaluate_by", text_or_null(rows, row, "evaluate_by")},
                 {"accepted", rows.json(row, "accepted")},
                 {"tasks", std::move(round.tasks)},
                 {"evaluations", std::move(round.evaluations)}};
    if (!rows.is_null(row, "waiting")) view["waiting"] = rows.json(row, "waiting");
    if (rows.boolean(row, "evaluated"))
        if (Json failed = failed_evaluations(round.evaluating); !failed.is_null())
            view["failed_evaluations"] = std::move(failed);
    return view;
}

const std::string kPreparationQuery =
    "SELECT id, spec, created_by, " + pg::rfc3339("created_at") + " AS created_at FROM preparations ";

Json preparation_item(const pg::Rows& rows, int row, const Task& task, const WaitingFacilities& facilities,
                      const EarlierAttempts& earlier) {
    Json view = rows.json(row, "spec");
    if (!view.is_object()) view = Json::object();
    view["id"] = rows.text(row, "id");
    view["created_by"] = rows.text(row, "created_by");
    view["created_at"] = rows.text(row, "created_at");
    view["state"] = to_string(task.state);
    view["step"] = task.attempt ? Json(to_string(task.attempt->step)) : Json();
    view["attempt"] = task.attempt ? Json(task.attempt->number) : Json();
    const bool goes_on = task.attempt && !is_finished(task.state);  // after an attempt that failed, or a try in vain
    view["error"] = task.error.empty() && goes_on ? task.attempt->error : task.error;
    add_waiting(view, task, facilities);
    add_queue_reason(view, task);
    if (const auto of_task = earlier.find(task.id); of_task != earlier.end())
        view["earlier_attempts"] = of_task->second;
    view["version"] = find_member(task.result, "dataset_version");
    view["result"] = task.result;
    return view;
}

}  // namespace

Result<Json> job_view(pg::Connection& connection, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows, connection.query(kJobQuery, {id}));
    if (rows.empty()) return not_found("no job " + id);
    return view_of_job(rows);
}

Result<std::string> JobAnswers::show(pg::Connection& connection, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows, connection.query(kJobQuery, {id}));
    if (rows.empty()) return not_found("no job " + id);
    {
        const std::lock_guard lock(mutex_);
        const auto kept = answers_.find(id);
        if (kept != answers_.end() && kept->second.rows == rows) return kept->second.text;
    }
    std::string text = view_of_job(rows).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > kKeptBytesMax) return text;
    const std::lock_guard lock(mutex_);
    if (answers_.size() >= kKeptMax) answers_.clear();
    answers_.insert_or_assign(id, Answer{rows, text});
    return text;
}

Result<std::vector<Json>> job_list(pg::Connection& connection, const std::string& after, std::int64_t limit) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query(
                  "SELECT " + kJobColumns + " FROM jobs j WHERE $1 = '' OR j.id < $1 ORDER BY j.id DESC LIMIT $2",
                  {after, limit}));
    std::vector<Json> jobs;
    for (int i = 0; i < rows.size(); ++i) jobs.push_back(read_job(rows, i));
    return jobs;
}

Result<Json> rounds_view(pg::Connection& connection, const std::string& job, std::int64_t after, std::int64_t limit) {
    ATOLL_TRY(const pg::Rows jobs, connection.query("SELECT spec FROM jobs WHERE id = $1", {job}));
    if (jobs.empty()) return not_found("no job " + job);
    ATOLL_TRY(const JobSpec spec, read_job_spec(jobs, job));
    const std::int64_t count = rounds_of_page(spec, limit);
    ATOLL_TRY(
        const pg::Rows rows,
        connection.query(
            "SELECT number, index, " + kShownState + " AS state, r.base_digest, version_digest, evaluated, r.error, " +
                pg::rfc3339("opened_at") + " AS opened_at, " + pg::rfc3339("coalesce(r.closed_at, j.finished_at)") +
                " AS closed_at, " + pg::rfc3339("aggregating_at") + " AS aggregating_at, " +
                pg::rfc3339("evaluated_at") + " AS evaluated_at, " + pg::rfc3339("deadline_at") + " AS deadline_at, " +
                pg::rfc3339("evaluate_by") + " AS evaluate_by, accepted, refused, contributions, " + kRoundWaiting +
                " AS waiting FROM rounds r JOIN jobs j ON j.id = r.job_id WHERE job_id = $1 AND number > "
                "$2 ORDER BY number LIMIT $3",
            {job, after, count + 1}));  // one more tells whether there is a next page
    const int shown = std::min(rows.size(), static_cast<int>(count));
    const std::int64_t last = shown == 0 ? after : rows.integer(shown - 1, "number");
    const std::string of_these = "t.job_id = $1 AND t.kind <> 'clean' AND t.round > $2 AND t.round <= $3";
    ATOLL_TRY(const std::vector<Task> tasks, load_tasks(connection, of_these, {job, after, last}));
    Updates updates;
    for (int i = 0; i < rows.size(); ++i) {
        ATOLL_TRY(const auto refusals, read_refusals(rows, i));
        for (const Refusal& refusal : refusals) updates.refused[refusal.task] = refusal.reason;
        add_contributions(updates, rows.json(i, "contributions"));
    }
    ATOLL_TRY(const WaitingFacilities facilities, waiting_facilities(connection));
    ATOLL_TRY(const EarlierAttempts earlier, earlier_attempts(connection, of_these, {job, after, last}));
    auto rounds = tasks_by_round(tasks, updates, facilities, earlier);
    Json items = Json::array();
    std::size_t bytes = 0;
    for (int i = 0; i < shown && bytes < kRoundsBytesMax; ++i) {
        items.push_back(round_item(rows, i, rounds[rows.integer(i, "number")]));
        bytes += items.back().dump(-1, ' ', false, Json::error_handler_t::replace).size();
    }
    const bool has_more = static_cast<int>(items.size()) < rows.size();
    return Json{{"next", has_more ? Json(items.back().at("round").dump()) : Json()}, {"items", std::move(items)}};
}

Result<Json> preparation_view(pg::Connection& connection, const std::string& id) {
    ATOLL_TRY(const pg::Rows rows, connection.query(kPreparationQuery + "WHERE id = $1", {id}));
    if (rows.empty()) return not_found("no preparation " + id);
    const std::string of_it = "t.preparation_id = $1 AND t.kind = 'prepare'";
    ATOLL_TRY(const std::vector<Task> tasks, load_tasks(connection, of_it, {id}));
    if (tasks.size() != 1) return internal_error("the preparation " + id + " has no task");
    ATOLL_TRY(const WaitingFacilities facilities, waiting_facilities(connection));
    ATOLL_TRY(const EarlierAttempts earlier, earlier_attempts(connection, of_it, {id}));
    return preparation_item(rows, 0, tasks.front(), facilities, earlier);
}

Result<std::vector<Json>> preparation_list(pg::Connection& connection, const std::string& after, std::int64_t limit) {
    const std::string page = "WHERE $1 = '' OR id < $1 ORDER BY id DESC LIMIT $2";
    const std::string of_page = "t.kind = 'prepare' AND t.preparation_id IN (SELECT id FROM preparations " + page + ")";
    ATOLL_TRY(const pg::Rows rows, connection.query(kPreparationQuery + page, {after, limit}));
    ATOLL_TRY(const std::vector<Task> tasks, load_tasks(connection, of_page, {after, limit}));
    ATOLL_TRY(const WaitingFacilities facilities, waiting_facilities(connection));
    ATOLL_TRY(const EarlierAttempts earlier, earlier_attempts(connection, of_page, {after, limit}));
    std::map<std::string, const Task*> by_preparation;
    for (const Task& task : tasks) by_preparation[task.preparation] = &task;
    std::vector<Json> items;
    for (int i = 0; i < rows.size(); ++i)
        if (const auto task = by_preparation.find(rows.text(i, "id")); task != by_preparation.end())
            items.push_back(preparation_item(rows, i, *task->second, facilities, earlier));
    return items;
}

}  // namespace atl::dispatch
