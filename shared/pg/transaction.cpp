#include "shared/pg/impl.h"

namespace atl::pg {

Result<Transaction> Transaction::begin(Connection& connection) {
    ATOLL_RETURN_IF_ERROR(connection.script("BEGIN"));
    return Transaction(connection);
}

Transaction::Transaction(Transaction&& other) noexcept : connection_(std::exchange(other.connection_, nullptr)) {}

Transaction::~Transaction() {
    // If this fails the connection is broken, and the server rolls back by itself.
    if (connection_ != nullptr) (void)connection_->script("ROLLBACK");
}

Result<Rows> Transaction::query(const std::string& sql, const std::vector<Param>& params) {
    check(connection_ != nullptr, "query in a transaction that has ended");
    return connection_->query(sql, params);
}

Status Transaction::commit() {
    check(connection_ != nullptr, "commit of a transaction that has ended");
    // Postgres answers a COMMIT after a failed statement with success and rolls back.
    ATOLL_TRY(const Rows rows, std::exchange(connection_, nullptr)->query("COMMIT"));
    if (rows.command() != "COMMIT")
        return internal_error("database: the transaction was rolled back, because one of its statements failed");
    return {};
}

}  // namespace atl::pg
