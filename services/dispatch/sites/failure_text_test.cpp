#include "services/dispatch/sites/failure_text.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

const std::string kDashes(74, '-');
const std::string kBanner = kDashes +
                            "\nPrimary job  terminated normally, but 1 process returned\n"
                            "a non-zero exit code. Per user-direction, the job has been aborted.\n" +
                            kDashes + "\n" + kDashes +
                            "\nmpirun detected that one or more processes exited with non-zero status, thus causing\n"
                            "the job to be terminated. The first process to do so was:\n\n"
                            "  Process name: [[4952,1],0]\n  Exit code:    2\n" +
                            kDashes + "\n";
const std::string kError = "atoll-trainer train: --lr: 'fast' is not a number";

TEST(FailureTextTest, TheTrainersOwnLineIsTheReasonNotMpirunsBanner) {
    EXPECT_EQ(failure_text(kError + "\n" + kBanner, 500), kError);
    EXPECT_EQ(failure_text("[n1:77] a note of a library\n" + kError + "\n" + kBanner, 500), kError);
    EXPECT_EQ(failure_text(kBanner + kError, 500), kError) << "the two are written by different processes";
}

TEST(FailureTextTest, IndentedLinesBelongToTheTrainersLineAboveThem) {
    const std::string plan = "atoll-trainer train: not enough memory\n  weights 3 GiB\n  moments 6 GiB";
    EXPECT_EQ(failure_text(plan + "\n" + kBanner, 500), plan);
}

TEST(FailureTextTest, WhatEveryRankSaysIsSaidOnce) {
    EXPECT_EQ(failure_text(kError + "\n" + kError + "\n" + kBanner, 500), kError);
}

TEST(FailureTextTest, WithoutTheTrainersLineTheRestWithoutTheBannerIsTheReason) {
    EXPECT_EQ(failure_text("sh: 1: atoll-trainer-: not found\n" + kBanner, 500), "sh: 1: atoll-trainer-: not found");
    EXPECT_EQ(failure_text("Killed\n", 500), "Killed");
    EXPECT_EQ(failure_text("", 500), "");
}

// What a killed program logged when it began says nothing of its end.
TEST(FailureTextTest, InformationIsNoReason) {
    const std::string info =
        "2026-03-01T12:00:00.123Z atoll-trainer info: --resume: begins with step 1, as no state is saved in out.state";
    EXPECT_EQ(failure_text(info + "\n", 500), "");
    EXPECT_EQ(failure_text(info + "\nKilled\n", 500), "Killed");
    const std::string warning = "2026-03-01T12:00:00.123Z atoll-trainer warning: 3 of 9 documents have no end token";
    EXPECT_EQ(failure_text(info + "\n" + warning + "\n", 500), warning);
    EXPECT_EQ(failure_text("an info: of somebody else\n", 500), "an info: of somebody else");
}

TEST(FailureTextTest, ABannerAloneIsTheReason) {
    const std::string text =
        failure_text(kDashes + "\nmpirun was unable to find atoll-trainer\n" + kDashes + "\n", 500);
    EXPECT_EQ(text, "mpirun was unable to find atoll-trainer");
}

TEST(FailureTextTest, ItIsCutWhereLinesBegin) {
    const std::string text = failure_text("one line\ntwo lines\nthree lines\n", 24);
    EXPECT_EQ(text, "two lines\nthree lines");
    EXPECT_EQ(failure_text(std::string("atoll-trainer train: x\natoll-trainer train: ") + std::string(600, 'a'), 30),
              "atoll-trainer train: aaaaaa…");
}

}  // namespace
}  // namespace atl::dispatch
