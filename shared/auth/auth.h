#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

// Bearer tokens: JSON Web Tokens (RFC 7519) signed with ES256 by libjwt. Whoever holds the private key issues (the
// stack's operator, and dispatch for its tasks); every service verifies with the public key alone.
namespace atl::auth {

enum class Role { kAdmin, kOperator, kFacility, kViewer };

const char* to_string(Role role);
Result<Role> parse_role(std::string_view name);

// What the token of one attempt may touch: it reads the listed model versions and hands in one update.
struct TaskScope {
    std::string facility;
    std::string job;
    std::string task;
    std::string attempt;
    std::vector<std::string> read_versions;  // version digests
    std::string write_model;                 // name of the model that its update becomes a version of
    std::int64_t round = 0;                  // of the job, that its update is for
};

struct Principal {
    std::string subject;  // "admin", "dispatch", "leonardo", …
    Role role = Role::kViewer;
    std::optional<TaskScope> scope;  // always set for kFacility
    std::int64_t expires_unix_s = 0;
};

// Issues tokens; Verifier, with the other half of the pair, tells whose they are:
//
//   ATOLL_TRY(const auto issuer, auth::Issuer::from_pem(pair.private_pem));
//   ATOLL_TRY(const std::string token, issuer.issue({.subject = "ada", .role = auth::Role::kOperator}, 24h));
//   ATOLL_TRY(const auto verifier, auth::Verifier::from_pem(pair.public_pem));
//   ATOLL_TRY(const auth::Principal principal, verifier.verify(token));  // principal.subject is "ada"
class Issuer {
  public:
    // The PEM text of an EC P-256 private key.
    static Result<Issuer> from_pem(std::string private_key_pem);
    // `principal.expires_unix_s` is set from lifetime.
    Result<std::string> issue(Principal principal, std::chrono::seconds lifetime) const;

  private:
    explicit Issuer(std::string pem) : pem_(std::move(pem)) {}
    std::string pem_;
};

// Thread-safe. kUnauthenticated for everything that is not a valid, unexpired token of ours (alg none included).
class Verifier {
  public:
    static Result<Verifier> from_pem(std::string public_key_pem);
    Result<Principal> verify(std::string_view token) const;

  private:
    explicit Verifier(std::string pem) : pem_(std::move(pem)) {}
    std::string pem_;
};

struct KeyPair {
    std::string private_pem;
    std::string public_pem;
};
// A new EC P-256 pair, by OpenSSL.
Result<KeyPair> generate_keys();

}  // namespace atl::auth
