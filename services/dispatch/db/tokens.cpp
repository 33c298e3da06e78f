#include "services/dispatch/db/tokens.h"

#include "services/dispatch/domain/task.h"
#include "shared/service/revocations.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::chrono::hours kTokenLifeMax{24 * 366};  // of people's tokens, and some

const std::string kTokenColumns = "id, subject, role, issued_by, signed_by, expires_at <= now() AS is_expired, " +
                                  pg::rfc3339("issued_at") + " AS issued_at, " + pg::rfc3339("expires_at") +
                                  " AS expires_at, " + pg::rfc3339("revoked_at") + " AS revoked_at";

// Why services refuse it; "valid": they take it.
std::string state_of(const pg::Rows& rows, int row, const std::set<std::string>& keys) {
    if (!rows.is_null(row, "revoked_at")) return "revoked";
    if (rows.boolean(row, "is_expired")) return "expired";
    return keys.contains(rows.text(row, "signed_by")) ? "valid" : "key-dropped";
}

Json token_view(const pg::Rows& rows, int row, const std::set<std::string>& keys) {
    Json token = Json::object();
    for (const char* column : {"id", "subject", "role", "issued_by", "issued_at", "expires_at"})
        token[column] = rows.text(row, column);
    token["revoked_at"] = rows.is_null(row, "revoked_at") ? Json() : Json(rows.text(row, "revoked_at"));
    token["state"] = state_of(rows, row, keys);
    return token;
}

}  // namespace

Result<Json> insert_token(pg::Transaction& transaction, const auth::Principal& principal, std::chrono::seconds life,
                          const Signature& signature) {
    ATOLL_TRY(
        const pg::Rows rows,
        transaction.query("INSERT INTO tokens (id, subject, role, issued_by, signed_by, expires_at) VALUES ($1, $2, "
                          "$3, $4, $5, now() + $6 * interval '1 s') RETURNING " +
                              kTokenColumns,
                          {principal.token_id, principal.subject, to_string(principal.role), signature.issued_by,
                           signature.key, static_cast<std::int64_t>(life.count())}));
    return token_view(rows, 0, {signature.key});
}

Result<std::vector<Json>> list_tokens(pg::Connection& connection, const std::set<std::string>& keys,
                                      const std::string& after, std::int64_t limit) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT " + kTokenColumns + " FROM tokens WHERE id > $1 ORDER BY id LIMIT $2",
                               {after, limit}));
    std::vector<Json> tokens;
    for (int i = 0; i < rows.size(); ++i) tokens.push_back(token_view(rows, i, keys));
    return tokens;
}

Status revoke_issued_token(pg::Transaction& transaction, const std::string& id) {
    ATOLL_RETURN_IF_ERROR(
        transaction.query("UPDATE tokens SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL", {id}));
    return service::revoke_token(transaction, id, kTokenLifeMax);
}

Status revoke_attempt_tokens(pg::Transaction& transaction, const std::string& task, std::int64_t attempt) {
    return service::revoke_token(transaction, auth::attempt_token_id(task, std::to_string(attempt)), kAttemptTokenLife);
}

}  // namespace atl::dispatch
