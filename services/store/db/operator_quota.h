#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/pg/pg.h"

// What operators have uploaded that no version needs: SQL. The count of an operator is an upper bound, made exact when
// it reaches the quota.
namespace atl::store {

// Counts an upload of an operator; false, and nothing is counted, if it and those blobs of theirs that no version needs
// were then more than `bytes_max`.
Result<bool> count_operator_upload(pg::Connection& connection, const std::string& subject, std::size_t bytes,
                                   std::int64_t bytes_max);
// Takes back what was counted: nothing new was kept.
Status uncount_operator_upload(pg::Connection& connection, const std::string& subject, std::size_t bytes);
// Remembers whose quota a new blob takes while no version needs it, and how much.
Status record_operator_blob(pg::Connection& connection, const std::string& subject, const std::string& blob,
                            std::size_t bytes);
// Of blobs that are gone.
Status forget_operator_blobs(pg::Transaction& transaction, const std::vector<std::string>& blobs);

}  // namespace atl::store
