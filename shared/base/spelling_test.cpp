#include "shared/base/spelling.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

const std::vector<std::string> kVerbs = {"init",  "submit", "list",   "show", "watch",
                                         "pause", "resume", "cancel", "logs"};

TEST(SpellingTest, AWordWithAFewLettersWrongFindsTheRightOne) {
    for (const auto& [typed, meant] : std::vector<std::pair<std::string, std::string>>{{"lst", "list"},
                                                                                       {"lsit", "list"},
                                                                                       {"submti", "submit"},
                                                                                       {"cancell", "cancel"},
                                                                                       {"resme", "resume"},
                                                                                       {"sub", "submit"},
                                                                                       {"log", "logs"}})
        EXPECT_EQ(nearest(typed, kVerbs), meant) << typed;
}

TEST(SpellingTest, AWordThatIsNearNothingFindsNothing) {
    for (const char* typed : {"delete", "x", "", "s", "frobnicate"}) EXPECT_EQ(nearest(typed, kVerbs), "") << typed;
}

TEST(SpellingTest, ForWhatNobodyTypesNothingIsLookedFor) {
    const std::string longest(64, 'a');
    EXPECT_EQ(nearest(longest, {longest + "b"}), longest + "b");
    EXPECT_EQ(nearest(longest + "b", {longest}), "");
    EXPECT_EQ(nearest(std::string(16 << 20, 'a'), {std::string(16 << 20, 'a') + "b"}), "");
    EXPECT_EQ(nearest("list", std::vector<std::string>(10'001, "lsit")), "");
    EXPECT_EQ(nearest("list", {std::string(16 << 20, 'l'), "lsit"}), "lsit");
}

}  // namespace
}  // namespace atl
