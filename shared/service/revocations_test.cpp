#include "shared/service/revocations.h"

#include <gtest/gtest.h>

#include <array>

#include "shared/base/file.h"
#include "shared/pg/testing/database_fixture.h"

namespace atl::service {
namespace {

using std::chrono::seconds;

class RevocationTest : public pg::DatabaseTest {
  protected:
    void SetUp() override {
        DatabaseTest::SetUp();
        if (IsSkipped()) return;
        ASSERT_TRUE(migrate_revocations(*connection_).ok());
        pool_.emplace(conninfo_, "auth", 2);
        ASSERT_TRUE(write_file_atomic(key_file_, keys_.public_pem).ok());
    }

    std::string issue(const auth::KeyPair& keys, const std::string& id) const {
        const auto issuer = auth::Issuer::from_pem(keys.private_pem).value();
        return issuer.issue({.token_id = id, .subject = "ada", .role = auth::Role::kViewer}, seconds(600)).value();
    }
    void revoke(const std::string& id, seconds life) {
        auto transaction = pg::Transaction::begin(*connection_).value();
        ASSERT_TRUE(revoke_token(transaction, id, life).ok());
        ASSERT_TRUE(transaction.commit().ok());
    }
    bool eventually_refused(const std::string& token) const {
        const auto deadline = std::chrono::steady_clock::now() + seconds(180);
        while (verifier_.verify(token).ok() && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return !verifier_.verify(token).ok();
    }

    TemporaryDirectory directory_;
    std::string key_file_ = (directory_.path() / "public.pem").string();
    auth::KeyPair keys_ = auth::generate_keys().value();
    auth::Verifier verifier_ = auth::Verifier::from_pem(keys_.public_pem).value();
    std::optional<pg::Pool> pool_;
};

TEST_F(RevocationTest, WhatWasRevokedBeforeTheStartIsRefusedFromTheStart) {
    revoke("t1", seconds(600));
    const auto watch = TokenWatch::start(*pool_, verifier_, key_file_);
    ASSERT_TRUE(watch.ok());
    EXPECT_FALSE(verifier_.verify(issue(keys_, "t1")).ok());
    EXPECT_TRUE(verifier_.verify(issue(keys_, "t2")).ok());
}

TEST_F(RevocationTest, ATokenAndAKeyEndWhileTheServiceRuns) {
    const auto watch = TokenWatch::start(*pool_, verifier_, key_file_);
    ASSERT_TRUE(watch.ok());
    const std::string token = issue(keys_, "t1"), other = issue(keys_, "t2");
    ASSERT_TRUE(verifier_.verify(token).ok());
    revoke("t1", seconds(600));
    revoke("t1", seconds(600));  // safe to repeat
    EXPECT_TRUE(eventually_refused(token));
    ASSERT_TRUE(verifier_.verify(other).ok());
    const auth::KeyPair next = auth::generate_keys().value();
    ASSERT_TRUE(write_file_atomic(key_file_, next.public_pem).ok());
    EXPECT_TRUE(eventually_refused(other));
    EXPECT_TRUE(verifier_.verify(issue(next, "t3")).ok());
}

TEST_F(RevocationTest, ARowGoesAWeekAfterItsTokensTime) {
    revoke("t1", seconds(-7 * 86'400 - 1));
    revoke("t2", seconds(600));
    ASSERT_TRUE(TokenWatch::start(*pool_, verifier_, key_file_).ok());
    EXPECT_EQ(query("SELECT token_id FROM auth.revocations").text(0, "token_id"), "t2");
    EXPECT_EQ(query("SELECT token_id FROM auth.revocations").size(), 1);
}

// As where each service has a role of its own: this one may read the schema alone, and has to wait for another's table.
TEST_F(RevocationTest, AServiceThatMayOnlyReadWaitsForTheTableAndReadsIt) {
    const std::string database = query("SELECT current_database() AS name").text(0, "name"),
                      role = database + "_reader";
    query("CREATE ROLE \"" + role + "\" LOGIN");
    query("REVOKE ALL ON DATABASE \"" + database + "\" FROM PUBLIC");
    query("GRANT CONNECT ON DATABASE \"" + database + "\" TO \"" + role + "\"");
    query("ALTER SCHEMA auth RENAME TO later");
    query("CREATE SCHEMA auth");
    query("CREATE SCHEMA own AUTHORIZATION \"" + role + "\"");
    query("GRANT USAGE ON SCHEMA auth TO \"" + role + "\"");
    const std::string conninfo = conninfo_ + " user='" + role + "'";
    {
        auto reader = pg::connect(conninfo).value();
        const Status status = migrate_revocations(reader);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
        query("DROP SCHEMA auth");
        query("ALTER SCHEMA later RENAME TO auth");
        query("GRANT USAGE ON SCHEMA auth TO \"" + role + "\"");
        query("GRANT SELECT ON auth.revocations TO \"" + role + "\"");
        revoke("t0", seconds(-7 * 86'400 - 1));
        revoke("t1", seconds(600));
        EXPECT_TRUE(migrate_revocations(reader).ok());
        const std::array<pg::Migration, 1> migrations{{{1, "CREATE TABLE t (n int)"}}};
        EXPECT_TRUE(pg::migrate(reader, "own", migrations).ok());
        pg::Pool pool(conninfo, "own", 1);
        EXPECT_TRUE(TokenWatch::start(pool, verifier_, key_file_).ok());
        EXPECT_FALSE(verifier_.verify(issue(keys_, "t1")).ok());
        EXPECT_EQ(query("SELECT token_id FROM auth.revocations").size(), 2);  // it may remove none
    }
    query("DROP OWNED BY \"" + role + "\"");
    query("DROP ROLE \"" + role + "\"");
}

TEST_F(RevocationTest, AClockThatIsSetForwardAndBackRevivesNoToken) {
    revoke("t1", seconds(-3600));  // as the database has it whose clock is an hour ahead
    ASSERT_TRUE(TokenWatch::start(*pool_, verifier_, key_file_).ok());
    query("UPDATE auth.revocations SET expires_at = expires_at + interval '2 hours'");  // the same, once it is back
    ASSERT_TRUE(TokenWatch::start(*pool_, verifier_, key_file_).ok());
    EXPECT_FALSE(verifier_.verify(issue(keys_, "t1")).ok());
}

}  // namespace
}  // namespace atl::service
