#include "services/dispatch/work/key_watch.h"

#include <gtest/gtest.h>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

class KeyWatchTest : public DispatchServiceTest {};

TEST_F(KeyWatchTest, AJobGoesOnToItsEndWhileItsKeyIsReplacedAndTheOldOneEnds) {
    ASSERT_TRUE(write_file_atomic(fake("train.waits"), "").ok());
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return lines("runs").size() >= 2; })) << "both train";
    const auth::KeyPair next = auth::generate_keys().value();
    catalog_->replace_keys(next.public_pem);  // the old key's tokens end at once
    std::filesystem::remove(fake("train.waits"));
    EXPECT_TRUE(eventually([&] {  // the attempts stand at handing in, which no service takes from the old key
        return connect().query("SELECT 1 FROM attempts WHERE step = 'collecting'")->size() == 2;
    }));
    ASSERT_TRUE(write_file_atomic(directory_.path() / "private.pem", "no key").ok());
    ASSERT_TRUE(write_file_atomic(directory_.path() / "private.pem", next.private_pem, 0600).ok());
    EXPECT_TRUE(reaches(job, "completed")) << error_of(job);
    EXPECT_EQ(
        connect().query("SELECT 1 FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.kind = 'train'")->size(), 2)
        << "nothing was trained twice";
    const std::string public_keys = directory_.path() / "public.pem";
    ASSERT_TRUE(write_file_atomic(public_keys, keys_.public_pem + next.public_pem).ok());
    const Json issued = client().post_json("/v1/tokens", {{"subject", "ada"}, {"role", "viewer"}}).value();
    EXPECT_TRUE(auth::Verifier::from_pem(next.public_pem)->verify(issued.at("token").get<std::string>()).ok());
}

TEST_F(KeyWatchTest, ATokenOfADroppedKeyIsListedAsThat) {
    const auto state_of_adas = [&] { return client().get_json("/v1/tokens").value().at("items").at(0).at("state"); };
    const auto issued = client().post_json("/v1/tokens", {{"subject", "ada"}, {"role", "viewer"}});
    ASSERT_TRUE(issued.ok()) << issued.error().message;
    EXPECT_EQ(issued->at("state"), "valid");
    const auth::KeyPair next = auth::generate_keys().value();
    const std::string public_keys = directory_.path() / "public.pem";
    ASSERT_TRUE(write_file_atomic(public_keys, next.public_pem + keys_.public_pem).ok());
    EXPECT_EQ(state_of_adas(), "valid") << "both keys hold";
    ASSERT_TRUE(write_file_atomic(public_keys, next.public_pem).ok());
    EXPECT_EQ(state_of_adas(), "key-dropped");
}

}  // namespace
}  // namespace atl::dispatch
