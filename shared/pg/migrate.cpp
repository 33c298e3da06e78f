#include <algorithm>

#include "shared/pg/pg.h"

namespace atl::pg {
namespace {

std::string quoted(const std::string& schema) {
    const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    check(!schema.empty() && std::all_of(schema.begin(), schema.end(), plain), "a schema's name is [a-z0-9_]+");
    return "\"" + schema + "\"";
}

// Takes the lock that lets one program migrate at a time, and makes the schema and its list of versions. Who owns a
// schema that is there needs no right to make one.
Result<int> prepare(Transaction& transaction, const std::string& schema) {
    ATOLL_RETURN_IF_ERROR(transaction.query("SET LOCAL statement_timeout = 0"));
    ATOLL_RETURN_IF_ERROR(
        transaction.query("SELECT pg_advisory_xact_lock(hashtextextended('atoll.migrate.' || $1, 0))", {schema}));
    ATOLL_RETURN_IF_ERROR(
        transaction.connection().script("SET LOCAL client_min_messages = warning; DO $$ BEGIN IF to_regnamespace('" +
                                        schema + "') IS NULL THEN CREATE SCHEMA " + quoted(schema) +
                                        "; END IF; END $$; SET LOCAL search_path = " + quoted(schema) +
                                        "; CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY,"
                                        " applied_at timestamptz NOT NULL DEFAULT now())"));
    ATOLL_TRY(const Rows rows, transaction.query("SELECT coalesce(max(version), 0) AS version FROM schema_migrations"));
    return static_cast<int>(rows.integer(0, "version"));
}

}  // namespace

Status migrate(Connection& connection, const std::string& schema, std::span<const Migration> migrations) {
    for (std::size_t i = 0; i < migrations.size(); ++i)
        check(migrations[i].version == static_cast<int>(i) + 1, "migrations are numbered 1, 2, 3 … without gaps");
    ATOLL_TRY(Transaction transaction, Transaction::begin(connection));
    ATOLL_TRY(const int current, prepare(transaction, schema));
    const int newest = static_cast<int>(migrations.size());
    if (current > newest)
        return conflict("database: schema " + schema + " is at version " + std::to_string(current) +
                            ", this program knows versions up to " + std::to_string(newest) + "; use a newer program",
                        schema);
    for (const auto& migration : migrations.subspan(static_cast<std::size_t>(current))) {
        ATOLL_RETURN_IF_ERROR(connection.script(std::string(migration.sql)));
        ATOLL_RETURN_IF_ERROR(
            transaction.query("INSERT INTO schema_migrations (version) VALUES ($1)", {migration.version}));
    }
    return transaction.commit();
}

}  // namespace atl::pg
