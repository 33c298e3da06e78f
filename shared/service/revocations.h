#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <unordered_set>

#include "shared/auth/auth.h"
#include "shared/pg/pg.h"

// Tokens that hold no longer. Their ids stand in one table of the coordinator's database, in the schema "auth", which
// dispatch writes and every service reads; a row goes when its token would have expired.
namespace atl::service {

// Where this role may not write the schema, as where each service has a role of its own, another service makes the
// table: kUnavailable until it has.
Status migrate_revocations(pg::Connection& connection);

// `life`: what is left of the longest-lived token of that id. Safe to repeat.
Status revoke_token(pg::Transaction& transaction, const std::string& token_id, std::chrono::seconds life);

// Keeps a verifier up to date in a thread of its own: a key that was replaced and a token that was revoked are known
// within kRenewal. What cannot be read stays as it was, and the log says so.
class TokenWatch {
  public:
    static constexpr std::chrono::seconds kRenewal{5};

    // Returns when the first look has been taken; its error is the caller's, so that no service begins without one.
    static Result<std::unique_ptr<TokenWatch>> start(pg::Pool& pool, auth::Verifier verifier, std::string key_file);

  private:
    TokenWatch(pg::Pool& pool, auth::Verifier verifier, std::string key_file)
        : pool_(pool), verifier_(std::move(verifier)), key_file_(std::move(key_file)) {}
    Status renew();

    pg::Pool& pool_;
    auth::Verifier verifier_;
    std::string key_file_;
    std::string keys_;     // of the file, as last read
    std::jthread thread_;  // last: stopped first
};

}  // namespace atl::service
