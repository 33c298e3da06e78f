#include "shared/service/idempotency.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/digest/digest.h"

namespace atl::service {
namespace {

constexpr std::size_t kKeyBytesMax = 200;
constexpr std::int64_t kKeptAnswersMax = 1000;  // of one subject
constexpr std::int64_t kKeptBytesMax = 4 << 20;

struct Key {
    std::string text;
    std::string subject;
    std::string request_sha256;
};

Result<Key> make_key(const http::Request& request, std::string text) {
    const auto printable = [](char c) { return c > ' ' && c < 127; };
    if (text.empty() || text.size() > kKeyBytesMax || !std::all_of(text.begin(), text.end(), printable))
        return invalid_argument("Idempotency-Key", "must be 1 to 200 printable ASCII characters");
    digest::Sha256 hash;
    hash.update(std::string(http::to_string(request.method)) + " " + request.path + "\n");
    hash.update(request.body);
    return Key{std::move(text), request.principal ? request.principal->subject : "", hash.finish()};
}

// A few at a time, so that no request pays for many.
Status forget_old(pg::Transaction& transaction) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "DELETE FROM idempotency WHERE ctid IN (SELECT ctid FROM idempotency WHERE created_at < now() - interval "
        "'7 days' ORDER BY created_at LIMIT 10 FOR UPDATE SKIP LOCKED)"));
    return {};
}

// Answers are kept a second time, beside what they tell of: of one subject the newest, as a repeat comes soon.
Status forget_beyond_quota(pg::Transaction& transaction, const std::string& subject) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "DELETE FROM idempotency WHERE ctid IN (SELECT ctid FROM idempotency WHERE subject = $1 AND key IN (SELECT key "
        "FROM (SELECT key, row_number() OVER newest AS place, sum(pg_column_size(response)) OVER newest AS bytes FROM "
        "idempotency WHERE subject = $1 WINDOW newest AS (ORDER BY created_at DESC, key)) AS kept WHERE place > $2 OR "
        "(place > 1 AND bytes > $3)) FOR UPDATE SKIP LOCKED)",
        {subject, kKeptAnswersMax, kKeptBytesMax}));
    return {};
}

json::Json to_json(const http::Response& response) {
    return {{"status", response.status},
            {"body", response.body},
            {"content_type", response.content_type},
            {"headers", response.headers}};
}

http::Response from_json(const json::Json& value) {
    return {.status = value.at("status").get<int>(),
            .body = value.at("body").get<std::string>(),
            .content_type = value.at("content_type").get<std::string>(),
            .headers = value.at("headers").get<std::vector<std::pair<std::string, std::string>>>()};
}

Result<http::Response> kept_answer(pg::Transaction& transaction, const Key& key) {
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("SELECT request_sha256, response FROM idempotency WHERE subject = $1 AND key = $2",
                                {key.subject, key.text}));
    if (rows.empty()) return unavailable("the first request with this Idempotency-Key has just failed; repeat it");
    if (rows.text(0, "request_sha256") != key.request_sha256)
        return conflict("this Idempotency-Key was used for another request", "Idempotency-Key");
    return from_json(rows.json(0, "response"));
}

Result<http::Response> first_or_kept(pg::Transaction& transaction, const Key& key, const Work& work) {
    ATOLL_RETURN_IF_ERROR(forget_old(transaction));
    // Waits for a transaction that has inserted the same key but not ended.
    ATOLL_TRY(const pg::Rows inserted,
              transaction.query("INSERT INTO idempotency (subject, key, request_sha256) VALUES ($1, $2, $3) "
                                "ON CONFLICT DO NOTHING",
                                {key.subject, key.text, key.request_sha256}));
    if (inserted.affected() == 0) return kept_answer(transaction, key);
    ATOLL_RETURN_IF_ERROR(forget_beyond_quota(transaction, key.subject));
    ATOLL_TRY(http::Response response, work(transaction));
    ATOLL_RETURN_IF_ERROR(transaction.query("UPDATE idempotency SET response = $3 WHERE subject = $1 AND key = $2",
                                            {key.subject, key.text, to_json(response)}));
    return response;
}

// Whether the key has its answer, whatever it answered.
Result<bool> has_answer(pg::Pool& pool, const http::Request& request) {
    if (!request.headers.contains("idempotency-key")) return false;
    ATOLL_TRY(const Key key, make_key(request, request.header("idempotency-key")));
    ATOLL_TRY(auto connection, pool.acquire());
    ATOLL_TRY(const pg::Rows rows,
              connection->query("SELECT 1 FROM idempotency WHERE subject = $1 AND key = $2 AND response IS NOT NULL",
                                {key.subject, key.text}));
    return !rows.empty();
}

}  // namespace

const std::string_view kIdempotencyTableSql = R"(
CREATE TABLE idempotency (
    subject        text NOT NULL,
    key            text NOT NULL,
    request_sha256 text NOT NULL,
    response       jsonb,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (subject, key)
);
CREATE INDEX idempotency_created_at ON idempotency (created_at);
)";

Result<http::Response> idempotent(pg::Pool& pool, const http::Request& request, const std::function<Status()>& before,
                                  const Work& work) {
    ATOLL_TRY(const bool answered, has_answer(pool, request));
    if (answered)
        return idempotent(pool, request, [](pg::Transaction&) -> Result<http::Response> {
            return unavailable("the first answer has just been forgotten; repeat the request");
        });
    ATOLL_RETURN_IF_ERROR(before());
    return idempotent(pool, request, work);
}

Result<http::Response> idempotent(pg::Pool& pool, const http::Request& request, const Work& work) {
    if (!request.headers.contains("idempotency-key")) return in_transaction(pool, work);
    ATOLL_TRY(const Key key, make_key(request, request.header("idempotency-key")));
    return in_transaction(pool, [&](pg::Transaction& transaction) { return first_or_kept(transaction, key, work); });
}

}  // namespace atl::service
