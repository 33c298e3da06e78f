#include "services/store/blobs/blob_store.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <thread>
#include <vector>

#include "shared/base/file.h"
#include "shared/digest/digest.h"

namespace atl::store {
namespace {

namespace fs = std::filesystem;

class BlobStoreTest : public testing::Test {
  protected:
    std::size_t file_count() const {
        std::size_t count = 0;
        for (const auto& entry : fs::recursive_directory_iterator(root_)) count += entry.is_regular_file() ? 1 : 0;
        return count;
    }

    TemporaryDirectory temporary_;
    fs::path root_ = temporary_.path() / "blobs";
    std::unique_ptr<BlobStore> blobs_ = BlobStore::open(root_).value();
    std::string bytes_ = "some bytes";
    std::string sha256_ = digest::sha256(bytes_);
};

TEST_F(BlobStoreTest, ABlobIsReadBackWholeAndInPart) {
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kNew);
    EXPECT_EQ(blobs_->blob_size(sha256_).value(), bytes_.size());
    EXPECT_EQ(blobs_->read(sha256_, 0, 1000).value(), bytes_);
    EXPECT_EQ(blobs_->read(sha256_, 5, 3).value(), "byt");
    EXPECT_EQ(blobs_->read(sha256_, 100, 3).value(), "");
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kThereAlready);
    EXPECT_EQ(read_file(root_ / sha256_.substr(0, 2) / sha256_.substr(2, 2) / sha256_).value(), bytes_)
        << "the gateway serves files by this path";
}

TEST_F(BlobStoreTest, ABlobIsRemovedOnlyWhenNobodyHasStoredOrTouchedItForLong) {
    ASSERT_TRUE(blobs_->put(sha256_, bytes_).ok());
    const auto path = root_ / BlobStore::relative_path(sha256_);
    const std::string first = sha256_.substr(0, 2);
    const std::chrono::hours day{24};
    const auto grow_old = [&] { fs::last_write_time(path, fs::file_time_type::clock::now() - 2 * day); };
    EXPECT_TRUE(blobs_->older_than(first, day).empty());
    EXPECT_FALSE(blobs_->remove_if_older(sha256_, day).value());
    grow_old();
    EXPECT_EQ(blobs_->older_than(first, day), std::vector{sha256_});
    EXPECT_TRUE(blobs_->touch(sha256_).value());
    EXPECT_FALSE(blobs_->remove_if_older(sha256_, day).value()) << "touched";
    grow_old();
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kThereAlready);
    EXPECT_FALSE(blobs_->remove_if_older(sha256_, day).value()) << "stored again";
    grow_old();
    EXPECT_TRUE(blobs_->remove_if_older(sha256_, day).value());
    EXPECT_FALSE(blobs_->remove_if_older(sha256_, day).value()) << "gone already";
    EXPECT_FALSE(blobs_->touch(sha256_).value());
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kNew);
}

TEST_F(BlobStoreTest, BytesThatHashToAnotherNameAreNotKept) {
    const auto stored = blobs_->put(sha256_, "other bytes");
    ASSERT_FALSE(stored.ok());
    EXPECT_EQ(stored.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(stored.error().field, "sha256");
    EXPECT_EQ(blobs_->blob_size(sha256_).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(file_count(), 0U);
}

TEST_F(BlobStoreTest, AFullDiskIsSaidAndNothingBecomesVisible) {
    int calls = 0;
    blobs_->set_write_hook([&] { return ++calls == 1 ? ENOSPC : 0; });
    const auto stored = blobs_->put(sha256_, bytes_);
    ASSERT_FALSE(stored.ok());
    EXPECT_EQ(stored.error().code, ErrorCode::kInsufficientStorage);
    EXPECT_EQ(file_count(), 0U);
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kNew) << "it works again afterwards";
}

TEST_F(BlobStoreTest, UploadsLeaveTheDiskAReserve) {
    ASSERT_TRUE(blobs_->put(sha256_, bytes_).ok());
    blobs_ = BlobStore::open(root_, std::uint64_t{1} << 60).value();
    const auto refused = blobs_->put(digest::sha256("more"), "more");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientStorage);
    EXPECT_EQ(file_count(), 1U);
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kThereAlready) << "takes no room";
    EXPECT_EQ(blobs_->read(sha256_, 0, 1000).value(), bytes_);
}

TEST_F(BlobStoreTest, WhoLeavesRoomForOthersLeavesTheReserveTwice) {
    const std::uint64_t available = blobs_->space()->free;
    blobs_ = BlobStore::open(root_, available / 10 * 7).value();
    const auto refused = blobs_->put(sha256_, bytes_, BlobStore::Reserve::kTwice);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientStorage);
    EXPECT_TRUE(blobs_->put(sha256_, bytes_).ok());
}

TEST_F(BlobStoreTest, TheReserveFitsTheDisk) {
    constexpr std::uint64_t kGiB = 1U << 30;
    EXPECT_EQ(default_free_bytes_min(100 * kGiB), 5 * kGiB);
    EXPECT_EQ(default_free_bytes_min(15 * kGiB), kGiB);
    EXPECT_EQ(default_free_bytes_min(kGiB), kGiB / 10) << "half of it is no reserve";
}

TEST_F(BlobStoreTest, ABlobIsSaidToBeThereOnlyWhenItsNameIsOnTheDisk) {
    int broken = EIO;
    blobs_->set_sync_hook([&] { return broken; });
    EXPECT_FALSE(blobs_->put(sha256_, bytes_).ok());
    ASSERT_TRUE(blobs_->blob_size(sha256_).ok()) << "it has its name";
    EXPECT_FALSE(blobs_->put(sha256_, bytes_).ok()) << "nobody has synced it";
    EXPECT_FALSE(blobs_->sync_names().ok());
    broken = 0;
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kThereAlready);
    broken = EIO;
    EXPECT_TRUE(blobs_->sync_names().ok()) << "all is on the disk: nothing is left to sync";
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kThereAlready);
}

TEST_F(BlobStoreTest, AHalfBlobOfThatNameIsReplaced) {
    fs::create_directories((root_ / BlobStore::relative_path(sha256_)).parent_path());
    std::ofstream(root_ / BlobStore::relative_path(sha256_)) << "some";
    EXPECT_EQ(blobs_->put(sha256_, bytes_).value(), BlobStore::Stored::kNew);
    EXPECT_EQ(blobs_->read(sha256_, 0, 1000).value(), bytes_);
}

TEST_F(BlobStoreTest, WhatAKilledProcessLeftIsRemovedAtTheStart) {
    ASSERT_TRUE(blobs_->put(sha256_, bytes_).ok());
    std::ofstream(root_ / "tmp" / "orphan") << "half of a blo";
    blobs_ = BlobStore::open(root_).value();
    EXPECT_EQ(file_count(), 1U);
    EXPECT_TRUE(blobs_->blob_size(sha256_).ok());
}

TEST_F(BlobStoreTest, ManyWritersOfOneBlobLeaveOne) {
    const std::string large(1U << 20, 'x');
    const std::string name = digest::sha256(large);
    {
        std::vector<std::jthread> writers;
        for (int i = 0; i < 4; ++i)
            writers.emplace_back([&] {
                for (int repeat = 0; repeat < 5; ++repeat) EXPECT_TRUE(blobs_->put(name, large).ok());
            });
    }
    EXPECT_EQ(file_count(), 1U);
    EXPECT_EQ(blobs_->read(name, 0, large.size()).value(), large);
}

TEST_F(BlobStoreTest, ARootThatCannotBeMadeIsTheOptionsError) {
    std::ofstream(temporary_.path() / "file") << "x";
    const auto opened = BlobStore::open(temporary_.path() / "file" / "blobs");
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().field, "store.root");
}

}  // namespace
}  // namespace atl::store
