#include "shared/auth/auth.h"

#include <gtest/gtest.h>
#include <jwt.h>

#include <cstdlib>
#include <ctime>
#include <thread>

#include "shared/auth/certificate.h"
#include "shared/json/json.h"

namespace atl::auth {
namespace {

using std::chrono::seconds;

const KeyPair& keys() {
    static const KeyPair pair = generate_keys().value();
    return pair;
}

std::string sign(jwt_alg_t algorithm, const std::string& key, const json::Json& claims) {
    jwt_t* token = nullptr;
    check(jwt_new(&token) == 0, "jwt_new");
    check(jwt_add_grants_json(token, claims.dump().c_str()) == 0, "claims");
    check(jwt_set_alg(token, algorithm, key.empty() ? nullptr : reinterpret_cast<const unsigned char*>(key.data()),
                      static_cast<int>(key.size())) == 0,
          "algorithm");
    char* text = jwt_encode_str(token);
    check(text != nullptr, "encode");
    std::string result = text;
    std::free(text);
    jwt_free(token);
    return result;
}

json::Json admin_claims() {
    const std::int64_t now = std::time(nullptr);
    return {{"iss", "atoll"}, {"jti", "t1"}, {"sub", "ann"}, {"role", "admin"}, {"iat", now}, {"exp", now + 600}};
}

void expect_refused(const std::string& token) {
    const auto verifier = Verifier::from_pem(keys().public_pem).value();
    const auto result = verifier.verify(token);
    ASSERT_FALSE(result.ok()) << token;
    EXPECT_EQ(result.error().code, ErrorCode::kUnauthenticated);
}

Principal facility_principal() {
    TaskScope scope{"leonardo", "job1", "task1", "1", {"aa", "bb"}, "model", 3};
    return {.subject = "leonardo", .role = Role::kFacility, .scope = scope};
}

TEST(AuthTest, AnIssuedTokenNamesItsSubjectRoleAndScope) {
    const auto issuer = Issuer::from_pem(keys().private_pem).value();
    const auto token = issuer.issue(facility_principal(), seconds(60)).value();
    const auto principal = Verifier::from_pem(keys().public_pem).value().verify(token).value();
    EXPECT_EQ(principal.subject, "leonardo");
    EXPECT_EQ(principal.role, Role::kFacility);
    ASSERT_TRUE(principal.scope.has_value());
    EXPECT_EQ(principal.scope->read_versions, (std::vector<std::string>{"aa", "bb"}));
    EXPECT_EQ(principal.scope->write_model, "model");
    EXPECT_EQ(principal.scope->round, 3);
    EXPECT_FALSE(principal.scope->read_updates);
    EXPECT_GT(principal.expires_unix_s, std::time(nullptr));
}

TEST(AuthTest, ATokenThatReadsItsRoundsUpdatesSaysSo) {
    auto evaluating = facility_principal();
    evaluating.scope->read_updates = true;
    const auto token = Issuer::from_pem(keys().private_pem)->issue(evaluating, seconds(60)).value();
    EXPECT_TRUE(Verifier::from_pem(keys().public_pem)->verify(token)->scope->read_updates);
}

TEST(AuthTest, ATokenSignedByOurKeyThroughLibjwtIsAccepted) {
    const auto verifier = Verifier::from_pem(keys().public_pem).value();
    EXPECT_TRUE(verifier.verify(sign(JWT_ALG_ES256, keys().private_pem, admin_claims())).ok());
}

TEST(AuthTest, AnUnsignedTokenIsRefused) {
    expect_refused(sign(JWT_ALG_NONE, "", admin_claims()));
}

TEST(AuthTest, AnHmacTokenKeyedWithThePublicKeyIsRefused) {
    expect_refused(sign(JWT_ALG_HS256, keys().public_pem, admin_claims()));
}

TEST(AuthTest, ATokenOfAnotherKeyIsRefused) {
    expect_refused(sign(JWT_ALG_ES256, generate_keys().value().private_pem, admin_claims()));
}

TEST(AuthTest, AnExpiredTokenIsRefused) {
    auto claims = admin_claims();
    claims["exp"] = std::time(nullptr) - 1;
    expect_refused(sign(JWT_ALG_ES256, keys().private_pem, claims));
}

TEST(AuthTest, ATokenWithoutAnExpiryIsRefused) {
    auto claims = admin_claims();
    claims.erase("exp");
    expect_refused(sign(JWT_ALG_ES256, keys().private_pem, claims));
}

TEST(AuthTest, ATokenOfAnotherIssuerIsRefused) {
    auto claims = admin_claims();
    claims["iss"] = "someone";
    expect_refused(sign(JWT_ALG_ES256, keys().private_pem, claims));
}

TEST(AuthTest, AnUnknownRoleOrClaimIsRefused) {
    auto claims = admin_claims();
    claims["role"] = "root";
    expect_refused(sign(JWT_ALG_ES256, keys().private_pem, claims));
    claims = admin_claims();
    claims["nbf"] = std::time(nullptr) + 3600;
    expect_refused(sign(JWT_ALG_ES256, keys().private_pem, claims));
}

TEST(AuthTest, ATamperedPayloadIsRefused) {
    const std::string viewer = Issuer::from_pem(keys().private_pem)
                                   .value()
                                   .issue({.subject = "v", .role = Role::kViewer}, seconds(60))
                                   .value();
    const std::string admin = sign(JWT_ALG_ES256, generate_keys().value().private_pem, admin_claims());
    const auto second_dot = [](const std::string& token) { return token.find('.', token.find('.') + 1); };
    expect_refused(admin.substr(0, second_dot(admin)) + viewer.substr(second_dot(viewer)));
}

TEST(AuthTest, AFacilityTokenWithoutAScopeIsRefused) {
    auto claims = admin_claims();
    claims["role"] = "facility";
    expect_refused(sign(JWT_ALG_ES256, keys().private_pem, claims));
}

TEST(AuthTest, GarbageIsRefused) {
    for (const char* token : {"", ".", "..", "a.b.c", "eyJhbGciOiJFUzI1NiJ9..", "Bearer x"}) expect_refused(token);
}

std::string viewers_token(const KeyPair& pair, seconds lifetime) {
    return Issuer::from_pem(pair.private_pem).value().issue({.subject = "v", .role = Role::kViewer}, lifetime).value();
}

TEST(AuthTest, ARevokedTokenIsRefusedAlsoWhereItWasSeenBefore) {
    auto verifier = Verifier::from_pem(keys().public_pem).value();
    const Verifier copy = verifier;
    const std::string token = viewers_token(keys(), seconds(600)), other = viewers_token(keys(), seconds(600));
    const auto principal = copy.verify(token);
    ASSERT_TRUE(principal.ok());
    verifier.replace_revoked({principal->token_id, "another"});
    EXPECT_EQ(copy.verify(token).error().code, ErrorCode::kUnauthenticated);
    EXPECT_TRUE(copy.verify(other).ok());
    verifier.replace_revoked({});
    EXPECT_TRUE(copy.verify(token).ok());
}

TEST(AuthTest, AnAttemptsTokensHaveItsName) {
    const auto issuer = Issuer::from_pem(keys().private_pem).value();
    const auto verifier = Verifier::from_pem(keys().public_pem).value();
    EXPECT_EQ(verifier.verify(issuer.issue(facility_principal(), seconds(60)).value())->token_id, "task1/1");
}

TEST(AuthTest, ATokenEndsWithItsTimeAlsoWhereItWasSeenBefore) {
    const auto verifier = Verifier::from_pem(keys().public_pem).value();
    const std::string token = viewers_token(keys(), seconds(2));
    ASSERT_TRUE(verifier.verify(token).ok());
    const auto deadline = std::chrono::steady_clock::now() + seconds(180);
    while (verifier.verify(token).ok() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(verifier.verify(token).ok());
}

TEST(AuthTest, TokensOfTwoKeysHoldWhileOneIsReplaced) {
    const KeyPair next = generate_keys().value();
    auto verifier = Verifier::from_pem(keys().public_pem).value();
    const std::string before = viewers_token(keys(), seconds(600)), after = viewers_token(next, seconds(600));
    EXPECT_TRUE(verifier.verify(before).ok());
    EXPECT_FALSE(verifier.verify(after).ok());
    ASSERT_TRUE(verifier.replace_keys(next.public_pem + keys().public_pem).ok());
    EXPECT_TRUE(verifier.verify(before).ok());
    EXPECT_TRUE(verifier.verify(after).ok());
    ASSERT_TRUE(verifier.replace_keys(next.public_pem).ok());
    EXPECT_FALSE(verifier.verify(before).ok());
    EXPECT_TRUE(verifier.verify(after).ok());
    EXPECT_FALSE(verifier.replace_keys("not a key").ok());
    EXPECT_TRUE(verifier.verify(after).ok());
}

TEST(AuthTest, AFacilityTokenIsNotIssuedWithoutAScope) {
    const auto issuer = Issuer::from_pem(keys().private_pem).value();
    auto principal = facility_principal();
    principal.scope.reset();
    EXPECT_EQ(issuer.issue(principal, seconds(60)).error().field, "scope");
}

TEST(AuthTest, AKeyThatIsNoKeyIsNamed) {
    EXPECT_EQ(Issuer::from_pem("not a key").error().field, "private_key");
    EXPECT_EQ(Verifier::from_pem("not a key").error().field, "public_key");
}

TEST(IssuerTest, AllCopiesSignWithANewKeyAndKeepTheirsWhenItIsNone) {
    const KeyPair old_pair = generate_keys().value(), new_pair = generate_keys().value();
    Issuer issuer = Issuer::from_pem(old_pair.private_pem).value();
    const Issuer copy = issuer;
    const auto key_of_a_token = [&]() -> std::string {
        const std::string token = copy.issue({.subject = "ada", .role = Role::kViewer}, std::chrono::hours(1)).value();
        for (const KeyPair& pair : {old_pair, new_pair})
            if (Verifier::from_pem(pair.public_pem)->verify(token).ok()) return pair.public_pem;
        return "";
    };
    EXPECT_FALSE(issuer.replace_key("no key").ok());
    EXPECT_FALSE(issuer.replace_key(new_pair.public_pem).ok());
    EXPECT_EQ(key_of_a_token(), old_pair.public_pem);
    ASSERT_TRUE(issuer.replace_key(new_pair.private_pem).ok());
    EXPECT_EQ(key_of_a_token(), new_pair.public_pem);
}

TEST(KeysTest, WhenATokenAndACertificateEndIsRead) {
    const std::string token = viewers_token(keys(), seconds(600));
    EXPECT_EQ(token_end_s(token).value(), Verifier::from_pem(keys().public_pem)->verify(token).value().expires_unix_s);
    EXPECT_FALSE(token_end_s("no token").ok());
    const std::string pem = make_credentials("atoll", {"kafka"}).value();
    EXPECT_NEAR(static_cast<double>(certificate_end_s(pem).value()),
                static_cast<double>(std::time(nullptr)) + 20.0 * 365 * 24 * 3600, 7200);
    EXPECT_FALSE(certificate_end_s("no certificate").ok());
}

// What the verification of TLS says is in KafkaTest.
TEST(KeysTest, AnAuthorityIssuesCertificatesThatEndAsAsked) {
    const std::string authority = make_authority("ours").value(), other = make_authority("ours").value();
    const std::string pem = issue_credentials(authority, "store", {"kafka"}, std::chrono::hours(48)).value();
    EXPECT_NEAR(static_cast<double>(certificate_end_s(pem).value()),
                static_cast<double>(std::time(nullptr)) + 48 * 3600, 60);
    EXPECT_TRUE(check_certificate(pem, pem).ok());
    EXPECT_TRUE(pem.ends_with(authority.substr(authority.find("-----BEGIN CERTIFICATE"))));
    EXPECT_TRUE(is_issued_by(authority, pem));
    EXPECT_FALSE(is_issued_by(other, pem));
    EXPECT_FALSE(is_issued_by(authority, "no certificate"));
    EXPECT_EQ(issue_credentials(keys().private_pem, "store", {}, std::chrono::hours(1)).error().field, "authority");
}

TEST(KeysTest, APrivateKeyTellsItsPublicOne) {
    const KeyPair pair = generate_keys().value();
    EXPECT_EQ(public_key_of(pair.private_pem).value(), pair.public_pem);
    EXPECT_FALSE(public_key_of(pair.public_pem).ok());
}

}  // namespace
}  // namespace atl::auth
