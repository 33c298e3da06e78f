#include "shared/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "shared/base/file_lock.h"
#include "shared/base/id.h"

namespace atl {
namespace {

TEST(FileTest, AnAtomicWriteReplacesTheWholeFile) {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "a";
    ASSERT_TRUE(write_file_atomic(path, "a longer first text").ok());
    ASSERT_TRUE(write_file_atomic(path, "second").ok());
    EXPECT_EQ(read_file(path).value(), "second");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1) << "a temporary file stayed";
}

TEST(FileTest, AMissingFileIsNotFoundAndNamed) {
    const auto result = read_file("/nonexistent/file");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(result.error().field, "/nonexistent/file");
}

TEST(FileTest, AnErrorSaysWhetherTheFileIsNotThereClosedOrWithoutRoom) {
    const std::pair<int, ErrorCode> codes[] = {{ENOENT, ErrorCode::kNotFound},
                                               {ENOTDIR, ErrorCode::kNotFound},
                                               {EACCES, ErrorCode::kPermissionDenied},
                                               {EPERM, ErrorCode::kPermissionDenied},
                                               {EROFS, ErrorCode::kPermissionDenied},
                                               {ENOSPC, ErrorCode::kInsufficientStorage},
                                               {EDQUOT, ErrorCode::kInsufficientStorage},
                                               {EIO, ErrorCode::kInternal}};
    for (const auto& [number, code] : codes) {
        errno = number;
        const Error error = file_error("a/b", "write");
        EXPECT_EQ(error.code, code) << number;
        EXPECT_EQ(error.field, "a/b");
        EXPECT_EQ(error.message, std::string("cannot write a/b: ") + std::strerror(number));
    }
}

TEST(FileTest, ALockIsOnesAndAFileSystemWithoutLocksGrantsIt) {
    const TemporaryDirectory directory;
    const auto open = [&](int flags) { return UniqueFd(::open(directory.path().c_str(), flags)); };
    UniqueFd first = open(O_RDONLY);
    const UniqueFd second = open(O_RDONLY);
    EXPECT_TRUE(try_lock(first));
    EXPECT_FALSE(try_lock(second));
    const UniqueFd without = open(O_PATH);  // flock() fails on it, as where there are no locks
    EXPECT_TRUE(try_lock(without));
    first.reset();
    EXPECT_TRUE(try_lock(second));
}

TEST(IdTest, LaterIdsSortLater) {
    const std::string first = new_id();
    EXPECT_EQ(first.size(), 26U);
    EXPECT_NE(first, new_id());
    EXPECT_LE(first.substr(0, 10), new_id().substr(0, 10));
}

}  // namespace
}  // namespace atl
