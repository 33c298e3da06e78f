#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/json/json.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Who issued a token, and which key signed it.
struct Signature {
    std::string issued_by;
    std::string key;
};
// Notes a token that is issued to a person or a program, and returns what list_tokens() shows of it; nobody keeps the
// token itself.
Result<json::Json> insert_token(pg::Transaction& transaction, const auth::Principal& principal,
                                std::chrono::seconds life, const Signature& signature);
// {id, subject, role, issued_by, issued_at, expires_at, revoked_at, state}, in order of ids, after `after`, at most
// `limit`. `keys`: those that hold.
Result<std::vector<json::Json>> list_tokens(pg::Connection& connection, const std::set<std::string>& keys,
                                            const std::string& after, std::int64_t limit);
// Ends it in all services within seconds. Safe to repeat. One that is not in the list, as those that `atoll up` makes,
// is ended too.
Status revoke_issued_token(pg::Transaction& transaction, const std::string& id);
// Ends all tokens of an attempt, which nobody needs once it has ended.
Status revoke_attempt_tokens(pg::Transaction& transaction, const std::string& task, std::int64_t attempt);

}  // namespace atl::dispatch
