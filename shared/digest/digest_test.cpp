#include "shared/digest/digest.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace atl::digest {
namespace {

// FIPS 180-4's example.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(DigestTest, ThePublishedExampleComesOut) {
    EXPECT_EQ(sha256("abc"), kAbc);
    EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(DigestTest, PiecesHashLikeTheWhole) {
    Sha256 hash;
    hash.update("a");
    hash.update("");
    hash.update("bc");
    EXPECT_EQ(hash.finish(), kAbc);
}

TEST(DigestTest, AFileOfManyBlocksHashesLikeItsBytes) {
    const TemporaryDirectory directory;
    std::string bytes(3'000'001, 'x');
    bytes[2'000'000] = 'y';
    ASSERT_TRUE(write_file_atomic(directory.path() / "f", bytes).ok());
    EXPECT_EQ(sha256_file(directory.path() / "f").value(), sha256(bytes));
}

TEST(DigestTest, AMissingFileIsNotFoundAndNamed) {
    const auto result = sha256_file("/nonexistent/file");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
    EXPECT_EQ(result.error().field, "/nonexistent/file");
}

TEST(DigestTest, OnlySixtyFourLowerCaseHexDigitsAreADigest) {
    EXPECT_TRUE(is_sha256(kAbc));
    std::string upper = kAbc;
    upper[0] = 'B';
    EXPECT_FALSE(is_sha256(upper));
    EXPECT_FALSE(is_sha256(std::string(kAbc) + "0"));
    EXPECT_FALSE(is_sha256(std::string(63, 'a') + "g"));
    EXPECT_FALSE(is_sha256(""));
}

}  // namespace
}  // namespace atl::digest
