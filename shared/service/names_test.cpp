#include "shared/service/names.h"

#include <gtest/gtest.h>

namespace atl::service {
namespace {

TEST(NamesTest, ANameStartsWithALetterOrDigitAndIsShort) {
    for (const std::string& name :
         {std::string("a"), std::string("fortunes-it"), std::string("0.b_c"), std::string(63, 'x')})
        EXPECT_TRUE(is_name(name)) << name;
    for (const std::string& name :
         {std::string(), std::string("-a"), std::string(".a"), std::string("A"), std::string("a b"), std::string("a/b"),
          std::string(".."), std::string("\xc3\xa8"), std::string(64, 'x'), std::string("a\0b", 3)})
        EXPECT_FALSE(is_name(name)) << name;
}

TEST(NamesTest, APathThatCouldLeaveItsDirectoryIsNotSafe) {
    for (const char* path : {"a", "datasets/fortunes-it/1", "a/..b/c.", "a b"})
        EXPECT_TRUE(is_safe_relative_path(path)) << path;
    for (const char* path :
         {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/.", "a\nb", "a\xC2\x9B", "a\xE2\x80\xAE.b", "a\xFF"})
        EXPECT_FALSE(is_safe_relative_path(path)) << path;
    EXPECT_TRUE(is_safe_relative_path(std::string(4096, 'a')));
    EXPECT_FALSE(is_safe_relative_path(std::string(4097, 'a')));
}

TEST(NamesTest, AWrongNameIsNamed) {
    EXPECT_EQ(check_name("A", "facility").error().field, "facility");
    EXPECT_EQ(check_name("A", "facility").error().message.find('^'), std::string::npos) << "said in words";
    EXPECT_EQ(check_name("newest", "tag").error().field, "tag");
    EXPECT_TRUE(check_name("newest-1", "tag").ok());
}

TEST(NamesTest, AnAddressIsOfTheWeb) {
    for (const char* address : {"http://127.0.0.1:7400/store", "https://coordinator", "unix:/run/gateway.sock:/store"})
        EXPECT_TRUE(is_web_address(address)) << address;
    for (const char* other : {"", "http://", "127.0.0.1:7400", "ftp://host/", "/store", "unix:a.sock"})
        EXPECT_FALSE(is_web_address(other)) << other;
}

}  // namespace
}  // namespace atl::service
