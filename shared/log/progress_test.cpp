#include "shared/log/progress.h"

#include <gtest/gtest.h>

namespace atl::log {
namespace {

TEST(ProgressTest, NothingForTwoSecondsThenALineEveryTwo) {
    double now = 100.0;
    Progress progress("eval", [&] { return now; });
    EXPECT_FALSE(progress.line_at(0.1));
    now = 101.9;
    EXPECT_FALSE(progress.line_at(0.2));
    now = 103.0;
    EXPECT_EQ(progress.line_at(0.25).value_or(""), "eval: 25 % done, 0:09 left");
    now = 104.9;
    EXPECT_FALSE(progress.line_at(0.5));
    now = 110.0;
    EXPECT_EQ(progress.line_at(0.5).value_or(""), "eval: 50 % done, 0:10 left");
}

TEST(ProgressTest, WhatHasNotBegunHasNoEnd) {
    double now = 0.0;
    Progress progress("init", [&] { return now; });
    now = 7400.0;
    EXPECT_EQ(progress.line_at(0.0).value_or(""), "init: 0 % done");
    now = 14800.0;
    EXPECT_EQ(progress.line_at(0.5).value_or(""), "init: 50 % done, 4:06:40 left");
}

TEST(ProgressTest, WhatIsLeftIsJudgedByThisProcess) {
    double now = 0.0;
    Progress progress("tokenize", [&] { return now; });
    progress.begin_at(0.5);
    now = 10.0;
    EXPECT_EQ(progress.line_at(0.51, "7 documents").value_or(""), "tokenize: 51 % done, 7 documents, 8:10 left");
    EXPECT_EQ(progress.elapsed_s(), 10.0);
}

}  // namespace
}  // namespace atl::log
