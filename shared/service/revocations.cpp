#include "shared/service/revocations.h"

#include "shared/base/backoff.h"
#include "shared/base/file.h"
#include "shared/log/log.h"

namespace atl::service {
namespace {

constexpr pg::Migration kMigrations[] = {
    {1,
     "CREATE TABLE revocations (token_id text PRIMARY KEY, expires_at timestamptz NOT NULL);"
     "CREATE INDEX revocations_expires ON revocations (expires_at);"}};

Result<std::unordered_set<std::string>> read_revoked(pg::Connection& connection) {
    // Kept for a week longer than needed: where a clock that was set forward is set back, their tokens would hold
    // again. Whoever may write the table removes them.
    ATOLL_RETURN_IF_ERROR(connection.script(
        "DO $$ BEGIN IF has_table_privilege('auth.revocations', 'DELETE') THEN "
        "DELETE FROM auth.revocations WHERE expires_at < clock_timestamp() - interval '7 days'; END IF; END $$"));
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT token_id FROM auth.revocations WHERE expires_at >= clock_timestamp()"));
    std::unordered_set<std::string> ids;
    for (int i = 0; i < rows.size(); ++i) ids.insert(rows.text(i, "token_id"));
    return ids;
}

}  // namespace

Status migrate_revocations(pg::Connection& connection) {
    ATOLL_TRY(const pg::Rows rows,
              connection.query("SELECT to_regclass('auth.revocations') IS NOT NULL AS is_there,"
                               " coalesce(has_schema_privilege(to_regnamespace('auth'), 'CREATE'),"
                               " has_database_privilege(current_database(), 'CREATE')) AS may_make"));
    if (rows.boolean(0, "may_make")) return pg::migrate(connection, "auth", kMigrations);
    if (rows.boolean(0, "is_there")) return {};
    return unavailable("the table auth.revocations does not exist yet: start dispatch, which creates it");
}

Status revoke_token(pg::Transaction& transaction, const std::string& token_id, std::chrono::seconds life) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "INSERT INTO auth.revocations (token_id, expires_at) VALUES ($1, clock_timestamp() + $2 * interval '1 s') "
        "ON CONFLICT (token_id) DO UPDATE SET expires_at = greatest(revocations.expires_at, excluded.expires_at)",
        {token_id, static_cast<std::int64_t>(life.count())}));
    return {};
}

Result<std::unique_ptr<TokenWatch>> TokenWatch::start(pg::Pool& pool, auth::Verifier verifier, std::string key_file) {
    std::unique_ptr<TokenWatch> watch(new TokenWatch(pool, std::move(verifier), std::move(key_file)));
    ATOLL_RETURN_IF_ERROR(watch->renew());
    watch->thread_ = std::jthread([self = watch.get()](const std::stop_token& stop) {
        while (wait_unless_stopped(stop, kRenewal))
            if (const Status status = contained([&] { return self->renew(); }); !status.ok())
                spdlog::warn("keys and revoked tokens stay as they were: {}", describe(status.error()));
    });
    return watch;
}

Status TokenWatch::renew() {
    ATOLL_TRY(std::string keys, read_file(key_file_));
    if (keys != keys_) ATOLL_RETURN_IF_ERROR(verifier_.replace_keys(keys));
    keys_ = std::move(keys);
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(auto revoked, read_revoked(*connection));
    verifier_.replace_revoked(std::move(revoked));
    return {};
}

}  // namespace atl::service
