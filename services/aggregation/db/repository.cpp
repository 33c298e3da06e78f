#include "services/aggregation/db/repository.h"

#include <charconv>

#include "shared/json/json.h"

namespace atl::aggregation {
namespace {

using json::Json;

Status notify_workers(pg::Transaction& transaction) {
    ATOLL_RETURN_IF_ERROR(transaction.query(std::string("NOTIFY ") + kWorkChannel));
    return {};
}

constexpr const char* kOnTake =
    ", attempts = t.attempts + CASE WHEN t.in_hand THEN 0 ELSE 1 END, in_hand = true, after_death = t.in_hand,"
    " deaths = CASE WHEN NOT t.in_hand THEN t.deaths"
    " WHEN t.died_at < now() - interval '1 hour' THEN 1 ELSE t.deaths + 1 END,"
    " died_at = CASE WHEN t.in_hand THEN now() ELSE t.died_at END";
const pg::LeaseTable kSteps{.name = "aggregations",
                            .key = {"id"},
                            .joins = "",
                            .due =
                                "(t.state IN ('planning', 'publishing')"
                                " OR (t.state = 'measuring' AND t.parts_left = 0))",
                            .order = "t.id",
                            .on_take = kOnTake};
const pg::LeaseTable kParts{.name = "parts",
                            .key = {"aggregation", "part"},
                            .joins =
                                "JOIN aggregations a ON a.id = t.aggregation"
                                " JOIN (SELECT aggregation, count(*) FILTER (WHERE in_hand AND lease_until > now()) AS"
                                " held FROM parts GROUP BY aggregation) AS turn ON turn.aggregation = t.aggregation",
                            .due = "t.sha256 IS NULL AND t.stage <> 'measured'",
                            // Aggregations take turns of a few parts, as each change opens other models: one whose
                            // parts take long holds one worker and not all.
                            .order = "turn.held, (a.parts_total - a.parts_left) / 8, t.aggregation, t.part",
                            .on_take = kOnTake};

round::Part read_part(const pg::Rows& rows, int row) {
    return {rows.text(row, "path"), static_cast<std::uint64_t>(rows.integer(row, "begin_byte")),
            static_cast<std::uint64_t>(rows.integer(row, "size_bytes")), rows.text(row, "sha256")};
}

Step step_of(const std::string& state) {
    if (state == "planning") return Step::kPlan;
    return state == "measuring" ? Step::kPrepare : Step::kPublish;
}

Claim step_claim(pg::LeasedRow leased) {
    const pg::Rows& row = leased.rows;
    return {.step = step_of(row.text(0, "state")),
            .aggregation = row.integer(0, "id"),
            .plan = static_cast<std::int64_t>(row.json(0, "refused").size()),
            .lease = std::move(leased.lease),
            .attempts = row.integer(0, "attempts"),
            .deaths = row.integer(0, "deaths"),
            .is_after_death = row.text(0, "after_death") == "t"};
}

Claim part_claim(pg::LeasedRow leased) {
    const pg::Rows& row = leased.rows;
    return {.step = row.text(0, "stage") == "measuring" ? Step::kMeasure : Step::kPart,
            .aggregation = row.integer(0, "aggregation"),
            .plan = row.integer(0, "plan"),
            .lease = std::move(leased.lease),
            .attempts = row.integer(0, "attempts"),
            .deaths = row.integer(0, "deaths"),
            .is_after_death = row.text(0, "after_death") == "t",
            .number = row.integer(0, "part"),
            .part = read_part(row, 0)};
}

const std::string kEndWork = std::string(pg::kGiveLeaseBack) + ", in_hand = false, deaths = 0, ";
const std::string kEndStep = "UPDATE aggregations SET " + kEndWork;
const std::string kEndPart = "UPDATE parts SET " + kEndWork;

// Whether a claim of any step is current, as a condition on its row $1 of aggregations. The claim's own parameters come
// behind the statement's three.
struct CurrentClaim {
    CurrentClaim(const Claim& claim, std::vector<pg::Param> statement) : params(std::move(statement)) {
        check(params.size() == 3, "three parameters come before the claim's");
        params.insert(params.end(), {claim.lease.fence, claim.plan});
        condition = " state NOT IN ('completed', 'failed') AND jsonb_array_length(refused) = $5 AND ";
        if (!claim.is_of_part()) {
            condition += "fence = $4";
            return;
        }
        condition +=
            "EXISTS (SELECT 1 FROM parts WHERE aggregation = $1 AND plan = $5 AND part = $6 AND fence = $4"
            " AND sha256 IS NULL)";
        params.emplace_back(claim.number);
    }
    std::string condition;
    std::vector<pg::Param> params;
};

// Ends the claim and with it all parts. False if it is not current.
Result<bool> end_claim(pg::Transaction& transaction, const Claim& claim, const std::string& changes,
                       std::vector<pg::Param> params) {
    const CurrentClaim current(claim, std::move(params));
    ATOLL_TRY(const auto updated, transaction.query(kEndStep + "refused = refused || $2, " + changes +
                                                        " WHERE id = $1 AND" + current.condition,
                                                    current.params));
    if (updated.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM parts WHERE aggregation = $1", {claim.aggregation}));
    return true;
}

// Ends a part's claim in this stage, which is the aggregation's state too, and counts it; `of_aggregation`: what
// changes there beside. False: the claim is not current.
Result<bool> end_part(pg::Transaction& transaction, const Claim& claim, const std::string& changes,
                      const std::string& stage, const pg::Param& value, const std::string& of_aggregation = "") {
    // The aggregation before its parts, as whoever ends it: in the other order they would wait for one another.
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT 1 FROM aggregations WHERE id = $1 FOR UPDATE", {claim.aggregation}));
    ATOLL_TRY(const auto ended,
              transaction.query(kEndPart + changes +
                                    " WHERE aggregation = $1 AND part = $2 AND fence = $3 AND plan = $5"
                                    " AND sha256 IS NULL AND stage = $6",
                                {claim.aggregation, claim.number, claim.lease.fence, value, claim.plan, stage}));
    if (ended.affected() == 0) return false;
    // The row's lock lets exactly one worker see the last part go.
    ATOLL_TRY(const auto left,
              transaction.query("UPDATE aggregations SET parts_left = parts_left - 1" + of_aggregation +
                                    " WHERE id = $1 AND state = $2 RETURNING parts_left",
                                {claim.aggregation, stage}));
    if (left.empty()) return false;
    if (left.integer(0, "parts_left") == 0) ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

const std::string kColumns =
    "SELECT id, job, round, model, base, strategy, updates, state, parts_total, parts_total - parts_left AS parts_done,"
    " version, optimizer_state, error, missing, refused, contributions, " +
    pg::rfc3339("created_at") + " AS created_at, " + pg::rfc3339("finished_at") + " AS finished_at FROM aggregations ";

Json text_or_null(const pg::Rows& rows, int row, const char* column) {
    return rows.is_null(row, column) ? Json() : Json(rows.text(row, column));
}

Json aggregation_json(const pg::Rows& rows, int row) {
    return {{"id", rows.integer(row, "id")},
            {"job", rows.text(row, "job")},
            {"round", rows.integer(row, "round")},
            {"model", rows.text(row, "model")},
            {"base", rows.text(row, "base")},
            {"strategy", rows.json(row, "strategy")},
            {"updates", rows.json(row, "updates")},
            {"refused", rows.json(row, "refused")},
            {"missing", rows.json(row, "missing")},
            {"contributions", rows.json(row, "contributions")},
            {"state", rows.text(row, "state")},
            {"parts", {{"total", rows.integer(row, "parts_total")}, {"done", rows.integer(row, "parts_done")}}},
            {"version", text_or_null(rows, row, "version")},
            {"optimizer_state", text_or_null(rows, row, "optimizer_state")},
            {"error", text_or_null(rows, row, "error")},
            {"created_at", rows.text(row, "created_at")},
            {"finished_at", text_or_null(rows, row, "finished_at")}};
}

}  // namespace

Result<bool> insert_aggregation(pg::Transaction& transaction, const round::ClosedRound& round) {
    ATOLL_TRY(const auto rows,
              transaction.query("INSERT INTO aggregations (job, round, model, base, strategy, updates, missing, quorum)"
                                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (job, round) DO NOTHING",
                                {round.job, round.round, round.model, round.base, aggregate::to_json(round.strategy),
                                 to_json(round.updates), Json(round.missing), round.quorum}));
    if (rows.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

std::vector<const pg::LeaseTable*> lease_tables() {
    return {&kSteps, &kParts};
}

Result<std::optional<Claim>> claim_work(pg::Connection& connection, const pg::LeaseTerms& terms) {
    ATOLL_TRY(auto step, pg::take_lease(connection, kSteps, terms));
    if (step) return std::optional(step_claim(std::move(*step)));
    ATOLL_TRY(auto part, pg::take_lease(connection, kParts, terms));
    return part ? std::optional(part_claim(std::move(*part))) : std::nullopt;
}

Status release(pg::Connection& connection, const Claim& claim, std::chrono::seconds pause, bool counts) {
    return pg::give_lease_back(connection, claim.lease, pause,
                               std::string(", in_hand = false") + (counts ? "" : ", attempts = attempts - 1"));
}

Result<round::ClosedRound> load_round(pg::Connection& connection, std::int64_t aggregation) {
    ATOLL_TRY(const auto rows,
              connection.query(
                  "SELECT jsonb_build_object('job', job, 'round', round, 'model', model, 'base', base,"
                  " 'strategy', strategy, 'updates', updates, 'missing', missing, 'quorum', quorum) AS data, refused, "
                  "coalesce((SELECT optimizer_state FROM aggregations b"
                  " WHERE b.job = a.job AND b.version = a.base ORDER BY b.round DESC LIMIT 1), '') AS optimizer_state,"
                  " EXISTS (SELECT 1 FROM aggregations b WHERE b.job = a.job AND b.version = a.base) AS base_is_jobs,"
                  " coalesce(statistics, '[]') AS statistics,"
                  " coalesce((SELECT jsonb_agg(jsonb_build_object('contributions', contributions, 'updates', updates))"
                  " FROM (SELECT contributions, updates FROM aggregations b WHERE b.job = a.job AND b.round < a.round"
                  " AND b.state = 'completed' AND jsonb_array_length(a.updates) < $3 ORDER BY b.round DESC LIMIT $4)"
                  " AS last), '[]') AS earlier,"
                  " coalesce((SELECT jsonb_agg(jsonb_build_object('updates', updates, 'refused', refused))"
                  " FROM (SELECT updates, refused FROM aggregations b WHERE b.job = a.job AND b.state = 'completed'"
                  " AND b.round BETWEEN a.round - $2 AND a.round - 1 AND a.missing <> '[]' ORDER BY b.round DESC)"
                  " AS last), '[]') AS last"
                  " FROM aggregations a WHERE id = $1",
                  {aggregation, round::kAbsentRoundsMax, round::kManyUpdates, round::kEarlierRoundsMax}));
    if (rows.empty()) return not_found("there is no such aggregation");
    ATOLL_TRY(round::ClosedRound round, round::parse_closed_round(rows.json(0, "data")));
    round.optimizer_state = rows.text(0, "optimizer_state");
    round.base_is_jobs = rows.text(0, "base_is_jobs") == "t";
    ATOLL_RETURN_IF_ERROR(leave_out(round, rows.json(0, "refused")));
    round.statistics = rows.json(0, "statistics").get<std::vector<double>>();
    take_earlier(round, rows.json(0, "earlier"));
    take_absent(round, rows.json(0, "last"));
    return round;
}

Result<std::vector<round::Part>> load_parts(pg::Connection& connection, std::int64_t aggregation) {
    ATOLL_TRY(const auto rows, connection.query("SELECT path, begin_byte, size_bytes, sha256 FROM parts"
                                                " WHERE aggregation = $1 ORDER BY part",
                                                {aggregation}));
    std::vector<round::Part> parts;
    for (int i = 0; i < rows.size(); ++i) parts.push_back(read_part(rows, i));
    return parts;
}

Result<std::vector<Json>> load_statistics(pg::Connection& connection, std::int64_t aggregation) {
    ATOLL_TRY(const auto rows,
              connection.query("SELECT statistics FROM parts WHERE aggregation = $1 ORDER BY part", {aggregation}));
    std::vector<Json> statistics;
    for (int i = 0; i < rows.size(); ++i)
        statistics.push_back(rows.is_null(i, "statistics") ? Json() : rows.json(i, "statistics"));
    return statistics;
}

Result<bool> save_plan(pg::Transaction& transaction, const Claim& claim, const std::vector<round::Part>& parts,
                       const Json& contributions) {
    const char* const stage = contributions.is_null() ? "measuring" : "averaging";
    ATOLL_TRY(
        const auto updated,
        transaction.query(kEndStep + "state = $4, parts_total = $3, parts_left = $3, contributions = $5, attempts = 0"
                                     " WHERE id = $1 AND fence = $2 AND state = 'planning'",
                          {claim.aggregation, claim.lease.fence, parts.size(), stage,
                           contributions.is_null() ? Json::array() : contributions}));
    if (updated.affected() == 0) return false;
    Json rows = Json::array();
    for (const round::Part& part : parts)
        rows.push_back(
            {{"part", rows.size()}, {"path", part.path}, {"begin_byte", part.begin}, {"size_bytes", part.size}});
    ATOLL_RETURN_IF_ERROR(
        transaction.query("INSERT INTO parts (aggregation, plan, stage, part, path, begin_byte, size_bytes)"
                          " SELECT $1, $3, $4, part, path, begin_byte, size_bytes FROM jsonb_to_recordset($2)"
                          " AS cut (part integer, path text, begin_byte bigint, size_bytes bigint)",
                          {claim.aggregation, rows, claim.plan, stage}));
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<bool> save_measured(pg::Transaction& transaction, const Claim& claim, const Json& statistics) {
    return end_part(transaction, claim, "statistics = $4, stage = 'measured'", "measuring", statistics);
}

Result<bool> save_prepared(pg::Transaction& transaction, const Claim& claim, const std::vector<double>& statistics,
                           const Json& contributions) {
    ATOLL_TRY(const auto updated,
              transaction.query(kEndStep + "state = 'averaging', parts_left = parts_total, attempts = 0,"
                                           " statistics = $3, contributions = $4"
                                           " WHERE id = $1 AND fence = $2 AND state = 'measuring'",
                                {claim.aggregation, claim.lease.fence, Json(statistics), contributions}));
    if (updated.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(
        transaction.query("UPDATE parts SET stage = 'averaging', statistics = NULL, attempts = 0"
                          " WHERE aggregation = $1",
                          {claim.aggregation}));
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<bool> save_part(pg::Transaction& transaction, const Claim& claim, const MadePart& made) {
    return end_part(transaction, claim,
                    "sha256 = $4::jsonb ->> 'sha256', statistics = nullif($4::jsonb -> 'lost', 'null')", "averaging",
                    Json{{"sha256", made.sha256}, {"lost", made.lost}},
                    ", state = CASE WHEN parts_left = 1 THEN 'publishing' ELSE state END");
}

Result<bool> reopen_parts(pg::Transaction& transaction, const Claim& claim, const std::set<std::string>& digests) {
    ATOLL_TRY(const auto updated,
              transaction.query(
                  kEndStep + "state = 'averaging', attempts = 0 WHERE id = $1 AND fence = $2 AND state = 'publishing'",
                  {claim.aggregation, claim.lease.fence}));
    if (updated.affected() == 0) return false;
    ATOLL_TRY(const auto reopened,
              transaction.query(kEndPart + "sha256 = NULL, attempts = 0 WHERE aggregation = $1"
                                           " AND sha256 IN (SELECT jsonb_array_elements_text($2::jsonb))",
                                {claim.aggregation, Json(digests)}));
    check(reopened.affected() > 0, "parts were missing that no aggregation has");
    ATOLL_RETURN_IF_ERROR(transaction.query("UPDATE aggregations SET parts_left = $2 WHERE id = $1",
                                            {claim.aggregation, reopened.affected()}));
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<bool> save_version(pg::Transaction& transaction, const Claim& claim, const Published& published) {
    ATOLL_TRY(const auto updated,
              transaction.query(kEndStep + "state = 'completed', version = $3, optimizer_state = nullif($4, ''),"
                                           " finished_at = now() WHERE id = $1 AND fence = $2 AND state = 'publishing'",
                                {claim.aggregation, claim.lease.fence, published.version, published.optimizer_state}));
    if (updated.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM parts WHERE aggregation = $1", {claim.aggregation}));
    return true;
}

Result<bool> save_refusal(pg::Transaction& transaction, const Claim& claim,
                          const std::vector<round::RefusedUpdate>& refused) {
    ATOLL_TRY(const bool saved, end_claim(transaction, claim,
                                          "state = 'planning', parts_total = 0, parts_left = 0, attempts = $3,"
                                          " contributions = '[]', statistics = NULL",
                                          {claim.aggregation, to_json(refused), 0}));
    if (saved) ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return saved;
}

Result<bool> save_failure(pg::Transaction& transaction, const Claim& claim, const std::string& error,
                          const std::vector<round::RefusedUpdate>& refused) {
    return end_claim(transaction, claim, "state = 'failed', error = $3, finished_at = now()",
                     {claim.aggregation, to_json(refused), error});
}

Result<Json> find_aggregation(pg::Transaction& transaction, const std::string& job, std::int64_t round) {
    ATOLL_TRY(const auto rows, transaction.query(kColumns + "WHERE job = $1 AND round = $2", {job, round}));
    if (rows.empty())
        return not_found("round " + std::to_string(round) + " of job " + job + " has not been aggregated", "round");
    return aggregation_json(rows, 0);
}

Result<std::vector<Json>> list_aggregations(pg::Transaction& transaction, const std::string& job,
                                            const http::Page& page) {
    std::int64_t after = 0;
    const char* end = page.after.data() + page.after.size();
    if (!page.after.empty() && std::from_chars(page.after.data(), end, after).ptr != end)
        return invalid_argument("after", "must be the `next` of another page");
    ATOLL_TRY(const auto rows,
              transaction.query(kColumns + "WHERE id > $1 AND ($2 = '' OR job = $2) ORDER BY id LIMIT $3",
                                {after, job, page.limit + 1}));
    std::vector<Json> items;
    for (int i = 0; i < rows.size(); ++i) items.push_back(aggregation_json(rows, i));
    return items;
}

}  // namespace atl::aggregation
