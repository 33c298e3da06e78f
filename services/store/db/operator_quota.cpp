#include "services/store/db/operator_quota.h"

#include "shared/json/json.h"

namespace atl::store {
namespace {

Result<bool> add_to_count(pg::Connection& connection, const std::string& subject, std::size_t bytes,
                          std::int64_t bytes_max) {
    ATOLL_TRY(const auto counted,
              connection.query("INSERT INTO operator_quotas AS q (subject, bytes) SELECT $1, $2::bigint"
                               " WHERE $2::bigint <= $3::bigint ON CONFLICT (subject) DO UPDATE"
                               " SET bytes = q.bytes + excluded.bytes WHERE q.bytes + excluded.bytes <= $3::bigint",
                               {subject, bytes, bytes_max}));
    return counted.affected() == 1;
}

// Reads all that the operator has uploaded: once a second at most.
Result<bool> count_anew(pg::Connection& connection, const std::string& subject) {
    ATOLL_TRY(
        const auto counted,
        connection.query("UPDATE operator_quotas SET counted_at = now(), bytes = (SELECT coalesce(sum(b.bytes), 0)"
                         " FROM operator_blobs b WHERE b.subject = $1 AND NOT EXISTS"
                         " (SELECT 1 FROM manifest_blobs m WHERE m.blob = b.blob))"
                         " WHERE subject = $1 AND counted_at < now() - interval '1 second'",
                         {subject}));
    return counted.affected() == 1;
}

}  // namespace

Result<bool> count_operator_upload(pg::Connection& connection, const std::string& subject, std::size_t bytes,
                                   std::int64_t bytes_max) {
    ATOLL_TRY(const bool fits, add_to_count(connection, subject, bytes, bytes_max));
    if (fits) return true;
    ATOLL_TRY(const bool is_recounted, count_anew(connection, subject));
    if (!is_recounted) return false;
    return add_to_count(connection, subject, bytes, bytes_max);
}

Status uncount_operator_upload(pg::Connection& connection, const std::string& subject, std::size_t bytes) {
    ATOLL_RETURN_IF_ERROR(connection.query(
        "UPDATE operator_quotas SET bytes = greatest(bytes - $2::bigint, 0) WHERE subject = $1", {subject, bytes}));
    return {};
}

Status record_operator_blob(pg::Connection& connection, const std::string& subject, const std::string& blob,
                            std::size_t bytes) {
    ATOLL_RETURN_IF_ERROR(
        connection.query("INSERT INTO operator_blobs (blob, subject, bytes) VALUES ($1, $2, $3)"
                         " ON CONFLICT (blob, subject) DO UPDATE SET"
                         " bytes = greatest(operator_blobs.bytes, excluded.bytes)",
                         {blob, subject, bytes}));
    return {};
}

Status forget_operator_blobs(pg::Transaction& transaction, const std::vector<std::string>& blobs) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "DELETE FROM operator_blobs WHERE blob IN (SELECT jsonb_array_elements_text($1::jsonb))", {json::Json(blobs)}));
    return {};
}

}  // namespace atl::store
