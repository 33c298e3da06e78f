#include <gtest/gtest.h>
#include <signal.h>

#include "services/stack/component.h"
#include "services/stack/process.h"
#include "services/stack/stack.h"
#include "shared/auth/auth.h"
#include "shared/auth/certificate.h"
#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"

namespace atl::stack {
namespace {

// The keys of a stack of which no service runs, unless a test starts one.
class RotationTest : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(make_directories(layout_).ok());
        ASSERT_TRUE(make_credentials(layout_).ok());
        old_key_ = key();
        old_token_ = token("admin");
    }
    Status rotate(std::chrono::milliseconds patience = std::chrono::minutes(1)) {
        return rotate_key(layout_.state, quiet_, patience);
    }
    std::string key() { return read_file(layout_.private_key()).value(); }
    std::string token(const char* name) { return read_file(layout_.token(name)).value(); }
    // What a service says that reads the public keys now.
    bool is_taken(const std::string& token) {
        return auth::Verifier::from_pem(read_file(layout_.public_key()).value())->verify(token).ok();
    }
    // A new token of the key that signs.
    std::string sign() {
        return auth::Issuer::from_pem(key())
            ->issue({.subject = "ada", .role = auth::Role::kViewer}, std::chrono::hours(1))
            .value();
    }

    TemporaryDirectory directory_;
    Layout layout_{directory_.path() / "state"};
    Report quiet_ = [](const std::string&) {};
    std::string old_key_;
    std::string old_token_;
};

TEST_F(RotationTest, OldTokensHoldUntilTheOldKeyIsDropped) {
    ASSERT_TRUE(rotate().ok());
    EXPECT_NE(key(), old_key_);
    EXPECT_FALSE(std::filesystem::exists(layout_.next_private_key()));
    EXPECT_TRUE(is_taken(old_token_));
    EXPECT_NE(token("admin"), old_token_);
    EXPECT_TRUE(is_taken(token("aggregation")));
    const std::string between = sign();
    ASSERT_TRUE(rotate().ok());
    EXPECT_TRUE(is_taken(old_token_) && is_taken(between)) << "the second rotation drops none";
    ASSERT_TRUE(drop_old_keys(layout_.state, quiet_).ok());
    EXPECT_FALSE(is_taken(old_token_) || is_taken(between));
    EXPECT_TRUE(is_taken(token("admin")) && is_taken(sign()));
    EXPECT_TRUE(drop_old_keys(layout_.state, quiet_).ok()) << "safe to repeat";
    EXPECT_EQ(std::filesystem::status(layout_.private_key()).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// What a call has left that was killed after each of its steps.
TEST_F(RotationTest, WhereverItIsKilledAllTokensHoldAndTheNextCallBringsItToItsEnd) {
    const auth::KeyPair next = auth::generate_keys().value();
    const std::string old_public = read_file(layout_.public_key()).value();
    for (int steps = 1; steps <= 4; ++steps) {
        ASSERT_TRUE(write_file_atomic(layout_.next_private_key(), next.private_pem, 0600).ok());
        const std::string known = steps > 1 ? next.public_pem + old_public : old_public;
        ASSERT_TRUE(write_file_atomic(layout_.public_key(), known).ok());
        ASSERT_TRUE(write_file_atomic(layout_.private_key(), steps > 2 ? next.private_pem : old_key_, 0600).ok());
        if (steps > 3) std::filesystem::remove(layout_.token("viewer"));  // and some are new
        EXPECT_TRUE(is_taken(old_token_) && is_taken(sign())) << steps;
        EXPECT_EQ(drop_old_keys(layout_.state, quiet_).error().code, ErrorCode::kConflict) << steps;
        EXPECT_TRUE(is_taken(old_token_)) << steps;
        ASSERT_TRUE(rotate().ok()) << steps;
        EXPECT_EQ(key(), next.private_pem) << steps;
        EXPECT_TRUE(is_taken(old_token_) && is_taken(token("viewer")) && is_taken(sign())) << steps;
        EXPECT_FALSE(std::filesystem::exists(layout_.next_private_key())) << steps;
        ASSERT_TRUE(write_file_atomic(layout_.token("viewer"), old_token_, 0600).ok());
    }
}

TEST_F(RotationTest, AServiceThatDoesNotTakeTheNewKeyKeepsTheOldOneSigning) {
    ASSERT_TRUE(
        start_recorded({"/bin/sleep", "300"}, layout_.pid_file("store"), layout_.log("store")).ok());  // answers nobody
    const Status refused = rotate(std::chrono::milliseconds(300));
    ASSERT_TRUE(stop_recorded(layout_.pid_file("store"), SIGKILL, std::chrono::seconds(5)).ok());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_TRUE(refused.error().message.starts_with("store ")) << refused.error().message;
    EXPECT_EQ(key(), old_key_);
    EXPECT_TRUE(is_taken(old_token_));
    ASSERT_TRUE(rotate().ok());
    EXPECT_NE(key(), old_key_);
}

// Of the broker and the services of containers.
TEST(KafkaCertificatesTest, OnlyOnesThatEndOrAreOfAnotherAuthorityAreMadeAnew) {
    const TemporaryDirectory directory;
    const Layout layout{directory.path() / "state"};
    ASSERT_TRUE(make_directories(layout).ok());
    const auto made = [&] {
        EXPECT_TRUE(make_kafka_certificates(layout).ok());
        std::vector<std::string> pems;
        for (const char* name : {"broker", "registry", "store", "dispatch", "aggregation"}) {
            pems.push_back(read_file(layout.kafka_certificate(name)).value());
            EXPECT_TRUE(auth::is_issued_by(read_file(layout.kafka_authority()).value(), pems.back())) << name;
            EXPECT_EQ(std::filesystem::status(layout.kafka_certificate(name)).permissions(),
                      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
        }
        return pems;
    };
    const auto first = made();
    EXPECT_EQ(made(), first) << "those that last are kept";
    // Half a year less a day before its end.
    const std::string old = auth::issue_credentials(read_file(layout.kafka_authority()).value(), "store", {},
                                                    std::chrono::hours(365 * 24 / 2 - 24))
                                .value();
    ASSERT_TRUE(write_file_atomic(layout.kafka_certificate("store"), old, 0600).ok());
    const auto second = made();
    EXPECT_NE(second[2], old);
    EXPECT_EQ(second[1], first[1]);
    std::filesystem::remove(layout.kafka_authority());
    const auto third = made();
    for (std::size_t i = 0; i < third.size(); ++i) EXPECT_NE(third[i], second[i]) << i;
}

TEST_F(RotationTest, ADirectoryWithoutAKeyIsNamed) {
    for (const Status& status : {rotate_key(directory_.path() / "none", quiet_), drop_old_keys("/nowhere", quiet_)}) {
        EXPECT_EQ(status.error().code, ErrorCode::kNotFound);
        EXPECT_EQ(status.error().field, "--state");
    }
}

}  // namespace
}  // namespace atl::stack
