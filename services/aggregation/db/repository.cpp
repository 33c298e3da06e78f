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

Result<std::optional<Claim>> claim_step(pg::Connection& connection, const std::string& worker, std::int64_t lease_s) {
    ATOLL_TRY(const auto rows,
              connection.query(
                  "WITH next AS MATERIALIZED ("
                  "  SELECT id FROM aggregations WHERE state IN ('planning', 'publishing') AND lease_until < now()"
                  "  ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
                  " UPDATE aggregations a SET worker = $1, lease_until = now() + $2 * interval '1 second',"
                  "   fence = fence + 1, attempts = attempts + 1"
                  " FROM next WHERE a.id = next.id RETURNING a.id, a.state, a.fence, a.attempts,"
                  " jsonb_array_length(a.refused) AS plan",
                  {worker, lease_s}));
    if (rows.empty()) return std::optional<Claim>();
    Claim claim;
    claim.step = rows.text(0, "state") == "planning" ? Step::kPlan : Step::kPublish;
    claim.aggregation = rows.integer(0, "id");
    claim.plan = rows.integer(0, "plan");
    claim.fence = rows.integer(0, "fence");
    claim.attempts = rows.integer(0, "attempts");
    return std::optional(std::move(claim));
}

Part part_of(const pg::Rows& rows, int row) {
    return {rows.text(row, "path"), static_cast<std::uint64_t>(rows.integer(row, "begin_byte")),
            static_cast<std::uint64_t>(rows.integer(row, "size_bytes")), rows.text(row, "sha256")};
}

Result<std::optional<Claim>> claim_part(pg::Connection& connection, const std::string& worker, std::int64_t lease_s) {
    ATOLL_TRY(const auto rows,
              connection.query("WITH next AS MATERIALIZED ("
                               "  SELECT aggregation, part FROM parts WHERE sha256 IS NULL AND lease_until < now()"
                               "  ORDER BY aggregation, part LIMIT 1 FOR UPDATE SKIP LOCKED)"
                               " UPDATE parts p SET worker = $1, lease_until = now() + $2 * interval '1 second',"
                               "   fence = fence + 1, attempts = attempts + 1"
                               " FROM next WHERE p.aggregation = next.aggregation AND p.part = next.part"
                               " RETURNING p.*",
                               {worker, lease_s}));
    if (rows.empty()) return std::optional<Claim>();
    Claim claim;
    claim.step = Step::kPart;
    claim.aggregation = rows.integer(0, "aggregation");
    claim.plan = rows.integer(0, "plan");
    claim.fence = rows.integer(0, "fence");
    claim.attempts = rows.integer(0, "attempts");
    claim.number = rows.integer(0, "part");
    claim.part = part_of(rows, 0);
    return std::optional(std::move(claim));
}

// Whether a claim of any step is current, as a condition on its row $1 of aggregations. The claim's own parameters come
// behind the statement's three.
struct CurrentClaim {
    CurrentClaim(const Claim& claim, std::vector<pg::Param> statement) : params(std::move(statement)) {
        check(params.size() == 3, "three parameters come before the claim's");
        params.insert(params.end(), {claim.fence, claim.plan});
        condition = " state NOT IN ('completed', 'failed') AND jsonb_array_length(refused) = $5 AND ";
        if (claim.step != Step::kPart) {
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
    ATOLL_TRY(const auto updated, transaction.query("UPDATE aggregations SET refused = refused || $2, worker = NULL, " +
                                                        changes + " WHERE id = $1 AND" + current.condition,
                                                    current.params));
    if (updated.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM parts WHERE aggregation = $1", {claim.aggregation}));
    return true;
}

const std::string kColumns =
    "SELECT id, job, round, model, base, strategy, updates, state, parts_total, parts_total - parts_left AS parts_done,"
    " version, momentum, error, refused, " +
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
            {"state", rows.text(row, "state")},
            {"parts", {{"total", rows.integer(row, "parts_total")}, {"done", rows.integer(row, "parts_done")}}},
            {"version", text_or_null(rows, row, "version")},
            {"momentum", text_or_null(rows, row, "momentum")},
            {"error", text_or_null(rows, row, "error")},
            {"created_at", rows.text(row, "created_at")},
            {"finished_at", text_or_null(rows, row, "finished_at")}};
}

}  // namespace

Result<bool> insert_aggregation(pg::Transaction& transaction, const ClosedRound& round) {
    ATOLL_TRY(const auto rows,
              transaction.query("INSERT INTO aggregations (job, round, model, base, strategy, updates, quorum)"
                                " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (job, round) DO NOTHING",
                                {round.job, round.round, round.model, round.base, round.strategy,
                                 to_json(round.updates), round.quorum}));
    if (rows.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<std::optional<Claim>> claim_work(pg::Connection& connection, const std::string& worker, std::int64_t lease_s) {
    ATOLL_TRY(auto claim, claim_step(connection, worker, lease_s));
    if (claim) return claim;
    return claim_part(connection, worker, lease_s);
}

Status renew_leases(pg::Connection& connection, const std::string& worker, std::int64_t lease_s) {
    for (const char* table : {"aggregations", "parts"})
        ATOLL_RETURN_IF_ERROR(connection.query(std::string("UPDATE ") + table +
                                                   " SET lease_until = now() + $2 * interval '1 second'"
                                                   " WHERE worker = $1 AND lease_until > now()",
                                               {worker, lease_s}));
    return {};
}

Status release_leases_of(pg::Connection& connection, const std::string& prefix) {
    for (const char* table : {"aggregations", "parts"})
        ATOLL_RETURN_IF_ERROR(connection.query(std::string("UPDATE ") + table +
                                                   " SET worker = NULL, lease_until = '-infinity'"
                                                   " WHERE starts_with(worker, $1) AND lease_until > now()",
                                               {prefix}));
    return {};
}

Status release(pg::Connection& connection, const Claim& claim, std::int64_t pause_s, bool counts) {
    const bool part = claim.step == Step::kPart;
    std::vector<pg::Param> params{claim.aggregation, claim.fence, pause_s, counts};
    if (part) params.insert(params.end(), {claim.number, claim.plan});
    ATOLL_RETURN_IF_ERROR(
        connection.query(std::string("UPDATE ") + (part ? "parts" : "aggregations") +
                             " SET worker = NULL, lease_until = now() + $3 * interval '1 second',"
                             " attempts = attempts - CASE WHEN $4::boolean THEN 0 ELSE 1 END WHERE fence = $2 AND " +
                             (part ? "aggregation = $1 AND part = $5 AND plan = $6" : "id = $1"),
                         params));
    return {};
}

Result<ClosedRound> load_round(pg::Connection& connection, std::int64_t aggregation) {
    ATOLL_TRY(
        const auto rows,
        connection.query("SELECT jsonb_build_object('job', job, 'round', round, 'model', model, 'base', base,"
                         " 'strategy', strategy, 'updates', updates, 'quorum', quorum) AS data, refused, "
                         "coalesce((SELECT momentum FROM aggregations b"
                         " WHERE b.job = a.job AND b.version = a.base ORDER BY b.round DESC LIMIT 1), '') AS momentum"
                         " FROM aggregations a WHERE id = $1",
                         {aggregation}));
    if (rows.empty()) return not_found("there is no such aggregation");
    ATOLL_TRY(ClosedRound round, parse_closed_round(rows.json(0, "data")));
    round.momentum = rows.text(0, "momentum");
    leave_out(round, rows.json(0, "refused"));
    return round;
}

Result<std::vector<Part>> load_parts(pg::Connection& connection, std::int64_t aggregation) {
    ATOLL_TRY(const auto rows, connection.query("SELECT path, begin_byte, size_bytes, sha256 FROM parts"
                                                " WHERE aggregation = $1 ORDER BY part",
                                                {aggregation}));
    std::vector<Part> parts;
    for (int i = 0; i < rows.size(); ++i) parts.push_back(part_of(rows, i));
    return parts;
}

Result<bool> save_plan(pg::Transaction& transaction, const Claim& claim, const std::vector<Part>& parts) {
    ATOLL_TRY(const auto updated,
              transaction.query("UPDATE aggregations SET state = 'averaging', parts_total = $3, parts_left = $3,"
                                " worker = NULL, lease_until = '-infinity', attempts = 0"
                                " WHERE id = $1 AND fence = $2 AND state = 'planning'",
                                {claim.aggregation, claim.fence, parts.size()}));
    if (updated.affected() == 0) return false;
    Json rows = Json::array();
    for (const Part& part : parts)
        rows.push_back(
            {{"part", rows.size()}, {"path", part.path}, {"begin_byte", part.begin}, {"size_bytes", part.size}});
    ATOLL_RETURN_IF_ERROR(
        transaction.query("INSERT INTO parts (aggregation, plan, part, path, begin_byte, size_bytes)"
                          " SELECT $1, $3, part, path, begin_byte, size_bytes FROM jsonb_to_recordset($2)"
                          " AS cut (part integer, path text, begin_byte bigint, size_bytes bigint)",
                          {claim.aggregation, rows, claim.plan}));
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<bool> save_part(pg::Transaction& transaction, const Claim& claim, const std::string& sha256) {
    // The aggregation before its parts, as whoever ends it: in the other order they would wait for one another.
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT 1 FROM aggregations WHERE id = $1 FOR UPDATE", {claim.aggregation}));
    ATOLL_TRY(const auto made,
              transaction.query("UPDATE parts SET sha256 = $4, worker = NULL"
                                " WHERE aggregation = $1 AND part = $2 AND fence = $3 AND plan = $5 AND sha256 IS NULL",
                                {claim.aggregation, claim.number, claim.fence, sha256, claim.plan}));
    if (made.affected() == 0) return false;
    // The row's lock lets exactly one worker see the last part go.
    ATOLL_TRY(const auto left, transaction.query("UPDATE aggregations SET parts_left = parts_left - 1,"
                                                 " state = CASE WHEN parts_left = 1 THEN 'publishing' ELSE state END"
                                                 " WHERE id = $1 AND state = 'averaging' RETURNING parts_left",
                                                 {claim.aggregation}));
    if (left.empty()) return false;
    if (left.integer(0, "parts_left") == 0) ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<bool> reopen_parts(pg::Transaction& transaction, const Claim& claim, const std::set<std::string>& digests) {
    ATOLL_TRY(const auto updated,
              transaction.query("UPDATE aggregations SET state = 'averaging', worker = NULL, lease_until = '-infinity',"
                                " attempts = 0 WHERE id = $1 AND fence = $2 AND state = 'publishing'",
                                {claim.aggregation, claim.fence}));
    if (updated.affected() == 0) return false;
    ATOLL_TRY(const auto reopened,
              transaction.query("UPDATE parts SET sha256 = NULL, worker = NULL, lease_until = '-infinity',"
                                " fence = fence + 1, attempts = 0 WHERE aggregation = $1"
                                " AND sha256 IN (SELECT jsonb_array_elements_text($2::jsonb))",
                                {claim.aggregation, Json(digests)}));
    check(reopened.affected() > 0, "parts were missing that no aggregation has");
    ATOLL_RETURN_IF_ERROR(transaction.query("UPDATE aggregations SET parts_left = $2 WHERE id = $1",
                                            {claim.aggregation, reopened.affected()}));
    ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return true;
}

Result<bool> save_version(pg::Transaction& transaction, const Claim& claim, const Published& published) {
    ATOLL_TRY(
        const auto updated,
        transaction.query("UPDATE aggregations SET state = 'completed', version = $3, momentum = nullif($4, ''),"
                          " finished_at = now(), worker = NULL WHERE id = $1 AND fence = $2 AND state = 'publishing'",
                          {claim.aggregation, claim.fence, published.version, published.momentum}));
    if (updated.affected() == 0) return false;
    ATOLL_RETURN_IF_ERROR(transaction.query("DELETE FROM parts WHERE aggregation = $1", {claim.aggregation}));
    return true;
}

Result<bool> save_refusal(pg::Transaction& transaction, const Claim& claim, const RefusedUpdate& refused) {
    ATOLL_TRY(const bool saved,
              end_claim(transaction, claim,
                        "state = 'planning', parts_total = 0, parts_left = 0, lease_until = '-infinity',"
                        " fence = fence + 1, attempts = $3",
                        {claim.aggregation, to_json(std::vector{refused}), 0}));
    if (saved) ATOLL_RETURN_IF_ERROR(notify_workers(transaction));
    return saved;
}

Result<bool> save_failure(pg::Transaction& transaction, const Claim& claim, const std::string& error,
                          const std::vector<RefusedUpdate>& refused) {
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
