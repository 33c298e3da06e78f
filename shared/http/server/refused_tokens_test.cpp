#include "shared/http/server/refused_tokens.h"

#include <gtest/gtest.h>

namespace atl::http {
namespace {

std::int64_t now_s = 100;

TEST(RefusedTokensTest, AnAddressHasSoManyASecondAndNoOtherPaysForIt) {
    RefusedTokens refused(3, [] { return now_s; });
    for (int i = 0; i < 3; ++i) {
        EXPECT_FALSE(refused.are_too_many("192.0.2.1")) << i;
        refused.count("192.0.2.1");
    }
    EXPECT_TRUE(refused.are_too_many("192.0.2.1"));
    EXPECT_FALSE(refused.are_too_many("192.0.2.2"));
    ++now_s;
    EXPECT_FALSE(refused.are_too_many("192.0.2.1"));
}

TEST(RefusedTokensTest, AnAddressOfIpv6IsOneOfItsNetwork) {
    RefusedTokens refused(1, [] { return now_s; });
    refused.count("2001:db8::1");
    EXPECT_TRUE(refused.are_too_many("2001:db8::1"));
    EXPECT_TRUE(refused.are_too_many("2001:db8:0:0:ffff::7"));
    EXPECT_FALSE(refused.are_too_many("2001:db8:0:1::1"));
    refused.count("::ffff:192.0.2.1");
    EXPECT_TRUE(refused.are_too_many("::ffff:192.0.2.1"));
    EXPECT_FALSE(refused.are_too_many("::ffff:192.0.2.2"));
}

}  // namespace
}  // namespace atl::http
