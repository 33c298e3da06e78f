#include "services/store/work/blob_intake.h"

#include <gtest/gtest.h>

#include <thread>

#include "services/store/db/repository.h"
#include "services/store/domain/version.h"
#include "services/store/testing/store_fixture.h"
#include "services/store/work/sweep.h"

namespace atl::store {
namespace {

// What each may upload; a blob costs 64 KiB at least.
class BlobIntakeTest : public StoreTest {
  protected:
    void SetUp() override {
        StoreTest::SetUp();
        if (IsSkipped()) return;
        blobs_ = BlobStore::open(temporary_.path() / "own").value();
        Settings settings;
        settings.operator_unused_bytes_max = 3 * (64 << 10);
        intake_.emplace(store_->pool(), *blobs_, settings);
    }
    static auth::Principal person(const std::string& subject, Role role = Role::kOperator) {
        auth::Principal principal;
        principal.subject = subject;
        principal.role = role;
        return principal;
    }
    // Nothing: it was kept.
    std::optional<ErrorCode> put(const auth::Principal& by, const std::string& bytes) {
        const auto stored = intake_->keep(by, digest::sha256(bytes), bytes);
        return stored.ok() ? std::nullopt : std::optional(stored.error().code);
    }

    std::unique_ptr<BlobStore> blobs_;
    std::optional<BlobIntake> intake_;
};

TEST_F(BlobIntakeTest, AnOperatorHasAQuotaOfWhatNoVersionNeedsAndStopsNobodyElse) {
    for (const char* bytes : {"1", "2", "3"}) EXPECT_EQ(put(person("eve"), bytes), std::nullopt) << bytes;
    EXPECT_EQ(put(person("eve"), "4"), ErrorCode::kTooLarge);
    EXPECT_EQ(put(person("eve"), "1"), std::nullopt) << "what is there costs nothing";
    EXPECT_EQ(put(person("eve"), "4"), ErrorCode::kTooLarge);
    EXPECT_EQ(put(person("ada"), "of ada"), std::nullopt);
    EXPECT_EQ(put(person("root", Role::kAdmin), "of an admin"), std::nullopt);
    EXPECT_EQ(put(person("aggregation"), "a part of a mean"), std::nullopt);
    auth::Principal attempt = person("leonardo", Role::kFacility);
    attempt.scope = auth::TaskScope{"leonardo", "job1", "task1", "1", {}, "out", 1};
    EXPECT_EQ(put(attempt, "an update"), std::nullopt);
}

TEST_F(BlobIntakeTest, WhatAVersionNeedsAndWhatIsSweptTakesNothingOfTheQuota) {
    const auto put_in_time = [&](const std::string& bytes) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (put(person("eve"), bytes) && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return blobs_->blob_size(digest::sha256(bytes)).ok();
    };
    for (const char* bytes : {"1", "2", "3"}) EXPECT_EQ(put(person("eve"), bytes), std::nullopt) << bytes;
    auto connection = store_->pool().acquire().value();
    ASSERT_TRUE(
        connection->query("INSERT INTO manifests (digest, body, size_bytes, file_count) VALUES ('m', '{}', 1, 1)")
            .ok());
    ASSERT_TRUE(
        connection->query("INSERT INTO manifest_blobs (manifest, blob) VALUES ('m', $1)", {digest::sha256("1")}).ok());
    EXPECT_TRUE(put_in_time("4"));
    EXPECT_EQ(put(person("eve"), "5"), ErrorCode::kTooLarge);
    ASSERT_EQ(sweep(store_->pool(), *blobs_, std::chrono::seconds(0))->blobs, 3);
    EXPECT_TRUE(put_in_time("5"));
}

TEST_F(BlobIntakeTest, WhatDispatchBringsLeavesRoomForUpdatesToo) {
    const std::uint64_t available = blobs_->space()->free;
    blobs_ = BlobStore::open(temporary_.path() / "small", available / 10 * 7).value();
    intake_.emplace(store_->pool(), *blobs_, Settings());
    for (const char* subject : {"dispatch", "eve"})
        EXPECT_EQ(put(person(subject), "what a job begins with"), ErrorCode::kInsufficientStorage) << subject;
    EXPECT_EQ(put(person("aggregation"), "a part of a mean"), std::nullopt);
}

TEST_F(BlobIntakeTest, WhatIsNotKeptIsNotCounted) {
    for (int i = 0; i < 10; ++i)
        EXPECT_FALSE(intake_->keep(person("eve"), digest::sha256("right"), "wrong" + std::to_string(i)).ok());
    for (const char* bytes : {"1", "2", "3"}) EXPECT_EQ(put(person("eve"), bytes), std::nullopt) << bytes;
}

// A store that is killed between a reservation and the blob's end gives nothing back by itself.
TEST_F(BlobIntakeTest, WhatAKilledStoreHadReservedIsFreeAgain) {
    auth::Principal attempt = person("leonardo", Role::kFacility);
    attempt.scope = auth::TaskScope{"leonardo", "job1", "task1", "1", {}, "out", 1};
    const std::int64_t quota = upload_quota(0);
    EXPECT_EQ(put(attempt, "kept"), std::nullopt);
    auto connection = store_->pool().acquire().value();
    ASSERT_TRUE(count_upload(*connection, *attempt.scope, static_cast<std::size_t>(quota - (64 << 10)), quota).value());
    EXPECT_EQ(put(attempt, "after the restart"), std::nullopt);
    const auto used = find_upload(*connection, "task1", "1").value().at("bytes").get<std::int64_t>();
    EXPECT_EQ(used, 2 * (64 << 10)) << "what it has sent, and no more";
    // What was sent stays counted.
    ASSERT_TRUE(
        connection->query("UPDATE uploaded_blobs SET bytes = $1 WHERE blob = $2", {quota, digest::sha256("kept")})
            .ok());
    ASSERT_TRUE(connection->query("UPDATE uploads SET bytes = $1, counted_at = '-infinity'", {quota}).ok());
    EXPECT_EQ(put(attempt, "more"), ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace atl::store
