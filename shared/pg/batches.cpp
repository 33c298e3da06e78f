#include "shared/pg/pg.h"

namespace atl::pg {
namespace {

constexpr std::int64_t kBatchRows = 5000;

Result<std::int64_t> delete_batch(Connection& connection, const OldRows& rows) {
    ATOLL_TRY(auto transaction, Transaction::begin(connection));
    ATOLL_RETURN_IF_ERROR(transaction.query("SET LOCAL statement_timeout = '60s'"));
    ATOLL_TRY(const Rows deleted,
              transaction.query("DELETE FROM " + rows.table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " +
                                    rows.table + " WHERE " + rows.condition + " ORDER BY " + rows.order + " LIMIT " +
                                    std::to_string(kBatchRows) + " FOR UPDATE SKIP LOCKED))",
                                rows.params));
    ATOLL_RETURN_IF_ERROR(transaction.commit());
    return deleted.affected();
}

}  // namespace

Status delete_in_batches(Pool& pool, const OldRows& rows, const std::stop_token& stop,
                         const std::function<void(std::int64_t)>& on_batch) {
    for (std::int64_t deleted = kBatchRows; deleted == kBatchRows && !stop.stop_requested();) {
        ATOLL_TRY(auto connection, pool.acquire());  // given back after each batch: others wait for one too
        ATOLL_TRY(deleted, delete_batch(*connection, rows));
        on_batch(deleted);
    }
    return {};
}

}  // namespace atl::pg
