#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "shared/base/result.h"

// Bearer tokens: JSON Web Tokens (RFC 7519) signed with ES256 by libjwt. Whoever holds the private key issues (the
// stack's operator, and dispatch for its tasks); every service verifies with the public key alone.
namespace atl::auth {

enum class Role { kAdmin, kOperator, kFacility, kViewer, kMetrics };  // kMetrics: reads metrics, nothing else

const char* to_string(Role role);
Result<Role> parse_role(std::string_view name);

// What the token of one attempt may touch: it reads the listed model versions, and the updates of its round where it
// evaluates those, and hands in one update.
struct TaskScope {
    std::string facility;
    std::string job;
    std::string task;
    std::string attempt;
    std::vector<std::string> read_versions;  // version digests; first the one that its update is trained from
    std::string write_model;                 // name of the model that its update becomes a version of
    std::int64_t round = 0;                  // of the job, that its update is for
    bool read_updates = false;               // whether it reads all updates of that round: the store knows which
};

// The id of all tokens of an attempt, so that they end together.
inline std::string attempt_token_id(const std::string& task, const std::string& attempt) {
    return task + "/" + attempt;
}

struct Principal {
    std::string token_id = {};  // JWT's "jti", by which the token is revoked
    std::string subject = {};   // "admin", "dispatch", "leonardo", …
    Role role = Role::kViewer;
    std::optional<TaskScope> scope = {};  // always set for kFacility
    std::int64_t expires_unix_s = 0;
};

// Issues tokens; Verifier, with the other half of the pair, tells whose they are:
//
//   ATOLL_TRY(const auto issuer, auth::Issuer::from_pem(pair.private_pem));
//   ATOLL_TRY(const std::string token, issuer.issue({.subject = "ada", .role = auth::Role::kOperator}, 24h));
//   ATOLL_TRY(const auto verifier, auth::Verifier::from_pem(pair.public_pem));
//   ATOLL_TRY(const auth::Principal principal, verifier.verify(token));  // principal.subject is "ada"
//
// Thread-safe; copies know the same, so that who holds one can tell all of a new key.
class Issuer {
  public:
    // The PEM text of an EC P-256 private key.
    static Result<Issuer> from_pem(std::string private_key_pem);
    // `principal.expires_unix_s` is set from lifetime, and its token_id where it has none: its attempt's, else a new
    // one.
    Result<std::string> issue(Principal principal, std::chrono::seconds lifetime) const;
    // As from_pem(); after an error the key is what it was.
    Status replace_key(const std::string& private_key_pem);

  private:
    struct Shared;
    explicit Issuer(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
    std::shared_ptr<Shared> shared_;
};

// Thread-safe; copies know the same, so that who holds one can tell all of new keys and of revoked tokens.
class Verifier {
  public:
    // Public keys in PEM, one after the other: while a key is replaced, tokens of the one before hold as well.
    static Result<Verifier> from_pem(const std::string& public_keys_pem);
    // kUnauthenticated for everything that is not a valid, unexpired token of ours (alg none included), or is revoked.
    // A token whose signature was right is remembered, and only its time and the revoked ones are looked at again.
    Result<Principal> verify(std::string_view token) const;

    // Whether verify() needs no look at its signature.
    bool remembers(std::string_view token) const;

    Status replace_keys(const std::string& public_keys_pem);
    // The ids of all tokens that hold no longer, in place of those that were.
    void replace_revoked(std::unordered_set<std::string> token_ids);

  private:
    struct Shared;
    explicit Verifier(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
    std::shared_ptr<Shared> shared_;
};

// When a token ends, as Unix time; nobody has looked at its signature. kInvalidArgument: it is no token.
Result<std::int64_t> token_end_s(const std::string& token);

struct KeyPair {
    std::string private_pem;
    std::string public_pem;
};
// A new EC P-256 pair, by OpenSSL.
Result<KeyPair> generate_keys();
// The other half of a private key.
Result<std::string> public_key_of(const std::string& private_pem);

}  // namespace atl::auth
