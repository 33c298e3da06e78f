#include "services/store/work/disk_watch.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "shared/base/file.h"

namespace atl::store {
namespace {

class DiskWatchTest : public testing::Test {
  protected:
    // What the file system of the test has free, give or take what others write meanwhile.
    std::uint64_t free() const { return std::filesystem::space(temporary_.path()).available; }
    DiskWatch::Room room_with_reserve(std::uint64_t free_bytes_min) {
        const auto blobs = BlobStore::open(temporary_.path() / "blobs", free_bytes_min).value();
        return DiskWatch(*blobs, metrics_).look();
    }

    TemporaryDirectory temporary_;
    metrics::Registry metrics_;
};

TEST_F(DiskWatchTest, LittleIsToldBeforeUploadsAreRefused) {
    EXPECT_EQ(room_with_reserve(0), DiskWatch::Room::kEnough);
    EXPECT_EQ(room_with_reserve(free() / 4), DiskWatch::Room::kEnough);
    EXPECT_EQ(room_with_reserve(free() / 4 * 3), DiskWatch::Room::kLittle);
    EXPECT_EQ(room_with_reserve(free() * 2), DiskWatch::Room::kNone);
}

TEST_F(DiskWatchTest, WhatIsFreeAndWhatIsKeptAreMetrics) {
    EXPECT_EQ(room_with_reserve(123456), DiskWatch::Room::kEnough);
    const std::string text = metrics_.expose();
    EXPECT_NE(text.find("\natoll_store_disk_reserve_bytes 123456\n"), std::string::npos) << text;
    EXPECT_NE(text.find("\natoll_store_disk_size_bytes "), std::string::npos) << text;
    const auto at = text.find("\natoll_store_disk_free_bytes ");
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_GT(std::stod(text.substr(text.find(' ', at))), static_cast<double>(free()) / 2);
}

}  // namespace
}  // namespace atl::store
