#include "services/store/domain/version_reference.h"

#include <gtest/gtest.h>

namespace atl::store {
namespace {

TEST(VersionReferenceTest, AVersionHasManyNames) {
    EXPECT_TRUE(std::holds_alternative<NewestVersion>(parse_version_reference("newest")));
    const auto round = parse_version_reference("round12");
    ASSERT_TRUE(std::holds_alternative<RoundVersion>(round));
    EXPECT_EQ(std::get<RoundVersion>(round).round, 12);
    const auto beginning = parse_version_reference("3f6c0a11");
    ASSERT_TRUE(std::holds_alternative<DigestBeginning>(beginning));
    EXPECT_EQ(std::get<DigestBeginning>(beginning).text, "3f6c0a11");
    const auto in_capitals = parse_version_reference("3F6C0A11" + std::string(56, 'D'));
    ASSERT_TRUE(std::holds_alternative<DigestBeginning>(in_capitals));
    EXPECT_EQ(std::get<DigestBeginning>(in_capitals).text, "3f6c0a11" + std::string(56, 'd'));
    EXPECT_TRUE(std::holds_alternative<ShortBeginning>(parse_version_reference("22625d")));
}

TEST(VersionReferenceTest, ATagNamesNoVersionAlready) {
    for (const char* tag : {"v1", "best", "round", "round-3", "2026-11-27", "decade", "v-20261127"})
        EXPECT_TRUE(check_tag(tag).ok()) << tag;
    for (const char* tag : {"newest", "round3", "round0", "Best", "", "492e02b6", "20261127", "492e02b6ffff"})
        EXPECT_EQ(check_tag(tag).error().field, "tag");
}

TEST(VersionReferenceTest, AllElseIsATagOrNothing) {
    for (const std::string& text :
         {std::string(), std::string("v1"), std::string("round"), std::string("roundx"), std::string("round-1"),
          std::string("round9999999999"), std::string("3f6c0a11%"), std::string(65, 'a'), std::string("rounds3")})
        EXPECT_TRUE(std::holds_alternative<UnknownVersion>(parse_version_reference(text))) << text;
}

}  // namespace
}  // namespace atl::store
