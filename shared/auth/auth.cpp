#include "shared/auth/auth.h"

#include <jwt.h>

#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "shared/base/id.h"
#include "shared/json/json.h"

namespace atl::auth {
namespace {

constexpr const char* kIssuer = "atoll";
constexpr std::size_t kRememberedMax = 1024;  // tokens; they have some 700 bytes

using Token = std::unique_ptr<jwt_t, decltype(&jwt_free)>;
using CString = std::unique_ptr<char, decltype(&std::free)>;

const unsigned char* unsigned_bytes(const std::string& text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

Error unauthenticated(std::string message) {
    return {ErrorCode::kUnauthenticated, std::move(message), {}};
}

json::Json to_json(const TaskScope& scope) {
    json::Json value = {{"facility", scope.facility},
                        {"job", scope.job},
                        {"task", scope.task},
                        {"attempt", scope.attempt},
                        {"read_versions", scope.read_versions},
                        {"write_model", scope.write_model},
                        {"round", scope.round}};
    if (scope.read_updates) value["read_updates"] = true;
    return value;
}

json::Json make_claims(const Principal& principal, std::int64_t issued_unix_s) {
    json::Json claims = {{"iss", kIssuer},           {"jti", principal.token_id},
                         {"sub", principal.subject}, {"role", to_string(principal.role)},
                         {"iat", issued_unix_s},     {"exp", principal.expires_unix_s}};
    if (principal.scope) claims["scope"] = to_json(*principal.scope);
    return claims;
}

Result<TaskScope> parse_scope(const json::Json& value) {
    json::ObjectReader reader(value, "scope");
    TaskScope scope;
    scope.facility = reader.required_string("facility");
    scope.job = reader.required_string("job");
    scope.task = reader.required_string("task");
    scope.attempt = reader.required_string("attempt");
    scope.write_model = reader.required_string("write_model");
    scope.round = reader.required_integer("round", 0, std::numeric_limits<std::int64_t>::max());
    scope.read_updates = reader.boolean_or("read_updates", false);
    for (const json::Json& version : reader.required_array("read_versions")) {
        if (!version.is_string()) return invalid_argument("scope.read_versions", "must be strings");
        scope.read_versions.push_back(version.get<std::string>());
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return scope;
}

// A claim that we do not know is refused: ignoring an "nbf" or "aud" would grant more than its issuer meant.
Result<Principal> parse_claims(const std::string& text) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    ATOLL_TRY(const json::Json claims, json::parse(text));
    json::ObjectReader reader(claims);
    Principal principal;
    const std::string issuer = reader.required_string("iss");
    principal.token_id = reader.required_string("jti");
    principal.subject = reader.required_string("sub");
    const std::string role = reader.required_string("role");
    reader.required_integer("iat", 0, kMax);
    principal.expires_unix_s = reader.required_integer("exp", 0, kMax);
    const json::Json& scope = reader.object_or_null("scope");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (issuer != kIssuer) return unauthenticated("the token was issued by someone else");
    ATOLL_TRY(principal.role, parse_role(role));
    if (!scope.is_null()) {
        ATOLL_TRY(principal.scope, parse_scope(scope));
    }
    if ((principal.role == Role::kFacility) != principal.scope.has_value())
        return unauthenticated("a facility's token, and no other, carries a scope");
    return principal;
}

// The claims of a token that the key has signed.
Result<Principal> decode(const std::string& token, const std::string& key) {
    jwt_t* raw = nullptr;
    const int failed = jwt_decode(&raw, token.c_str(), unsigned_bytes(key), static_cast<int>(key.size()));
    const Token decoded(raw, &jwt_free);
    // jwt_decode believes the token's own "alg": HS256 "signed" with our public key would pass it.
    if (failed != 0 || !decoded || jwt_get_alg(decoded.get()) != JWT_ALG_ES256)
        return unauthenticated("the token is not valid");
    const CString claims(jwt_get_grants_json(decoded.get(), nullptr), &std::free);
    if (!claims) return unauthenticated("the token has no claims");
    auto principal = parse_claims(claims.get());
    if (!principal.ok()) return unauthenticated("the token is not valid: " + describe(principal.error()));
    return principal;
}

// Each of the keys that stand one after the other.
Result<std::vector<std::string>> split_keys(const std::string& pem) {
    static const std::string begin = "-----BEGIN PUBLIC KEY-----";
    std::vector<std::string> keys;
    for (auto at = pem.find(begin); at != std::string::npos;) {
        const auto next = pem.find(begin, at + begin.size());
        keys.push_back(pem.substr(at, next == std::string::npos ? next : next - at));
        at = next;
    }
    if (keys.empty()) return invalid_argument("public_key", "the public key is not in PEM (\"BEGIN PUBLIC KEY\")");
    return keys;
}

}  // namespace

struct Verifier::Shared {
    std::mutex mutex;
    std::vector<std::string> keys;
    std::unordered_set<std::string> revoked;                // token ids
    std::unordered_map<std::string, Principal> remembered;  // by token: those whose signature was right
};

const char* to_string(Role role) {
    switch (role) {
        case Role::kAdmin:
            return "admin";
        case Role::kOperator:
            return "operator";
        case Role::kFacility:
            return "facility";
        case Role::kViewer:
            return "viewer";
        case Role::kMetrics:
            return "metrics";
    }
    return "viewer";
}

Result<Role> parse_role(std::string_view name) {
    for (const Role role : {Role::kAdmin, Role::kOperator, Role::kFacility, Role::kViewer, Role::kMetrics})
        if (name == to_string(role)) return role;
    return invalid_argument("role", "must be admin, operator, facility, viewer or metrics");
}

struct Issuer::Shared {
    std::mutex mutex;
    std::string pem;
};

Result<Issuer> Issuer::from_pem(std::string private_key_pem) {
    const Issuer issuer(std::make_shared<Shared>());
    issuer.shared_->pem = std::move(private_key_pem);
    ATOLL_RETURN_IF_ERROR(issuer.issue({.subject = "probe", .role = Role::kViewer}, std::chrono::seconds(1)));
    return issuer;
}

Status Issuer::replace_key(const std::string& private_key_pem) {
    ATOLL_RETURN_IF_ERROR(from_pem(private_key_pem));
    const std::lock_guard lock(shared_->mutex);
    shared_->pem = private_key_pem;
    return {};
}

Result<std::string> Issuer::issue(Principal principal, std::chrono::seconds lifetime) const {
    if ((principal.role == Role::kFacility) != principal.scope.has_value())
        return invalid_argument("scope", "a facility's token, and no other, carries a scope");
    const auto& scope = principal.scope;
    if (principal.token_id.empty())
        principal.token_id = scope ? attempt_token_id(scope->task, scope->attempt) : new_id();
    const std::int64_t now = std::time(nullptr);
    principal.expires_unix_s = now + lifetime.count();
    jwt_t* raw = nullptr;
    if (jwt_new(&raw) != 0) return internal_error("libjwt cannot allocate a token");
    const Token token(raw, &jwt_free);
    const std::string claims = make_claims(principal, now).dump();
    std::unique_lock lock(shared_->mutex);
    const std::string pem = shared_->pem;
    lock.unlock();
    if (jwt_add_grants_json(token.get(), claims.c_str()) != 0 ||
        jwt_set_alg(token.get(), JWT_ALG_ES256, unsigned_bytes(pem), static_cast<int>(pem.size())) != 0)
        return internal_error("libjwt refuses the claims or the key");
    const CString encoded(jwt_encode_str(token.get()), &std::free);
    if (!encoded) return invalid_argument("private_key", "the private key is not an EC P-256 key in PEM");
    return std::string(encoded.get());
}

Result<Verifier> Verifier::from_pem(const std::string& public_keys_pem) {
    Verifier verifier(std::make_shared<Shared>());
    ATOLL_RETURN_IF_ERROR(verifier.replace_keys(public_keys_pem));
    return verifier;
}

Status Verifier::replace_keys(const std::string& public_keys_pem) {
    ATOLL_TRY(std::vector<std::string> keys, split_keys(public_keys_pem));
    const std::lock_guard lock(shared_->mutex);
    shared_->keys = std::move(keys);
    shared_->remembered.clear();
    return {};
}

void Verifier::replace_revoked(std::unordered_set<std::string> token_ids) {
    const std::lock_guard lock(shared_->mutex);
    shared_->revoked = std::move(token_ids);
}

bool Verifier::remembers(std::string_view token) const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->remembered.contains(std::string(token));
}

Result<Principal> Verifier::verify(std::string_view token) const {
    const std::string text(token);
    std::unique_lock lock(shared_->mutex);
    auto known = shared_->remembered.find(text);
    if (known == shared_->remembered.end()) {
        const std::vector<std::string> keys = shared_->keys;
        lock.unlock();
        Result<Principal> decoded = unauthenticated("the token is not valid");
        for (auto key = keys.begin(); !decoded.ok() && key != keys.end(); ++key) decoded = decode(text, *key);
        if (!decoded.ok()) return decoded;
        lock.lock();
        if (shared_->keys != keys) return unauthenticated("the keys have changed meanwhile");
        if (shared_->remembered.size() >= kRememberedMax) shared_->remembered.clear();
        known = shared_->remembered.emplace(text, std::move(decoded).value()).first;
    }
    const Principal& principal = known->second;
    if (principal.expires_unix_s <= std::time(nullptr)) return unauthenticated("the token has expired");
    if (shared_->revoked.contains(principal.token_id)) return unauthenticated("the token was revoked");
    return principal;
}

Result<std::int64_t> token_end_s(const std::string& token) {
    jwt_t* raw = nullptr;
    if (jwt_decode(&raw, token.c_str(), nullptr, 0) != 0) return invalid_argument("token", "is no JSON Web Token");
    const std::unique_ptr<jwt_t, decltype(&jwt_free)> decoded(raw, &jwt_free);
    return jwt_get_grant_int(raw, "exp");
}

}  // namespace atl::auth
