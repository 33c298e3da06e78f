#include "services/dispatch/work/queue_status_cache.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

class BatchAnswersTest : public testing::Test {
  protected:
    Result<QueueStatus> ask(const std::string& name, std::int64_t seen_ms, std::int64_t now_ms) {
        return answers_.find({"leonardo", name, seen_ms, 1000, now_ms,
                              [this]() -> Result<std::vector<BatchJobRef>> { return jobs_; },
                              [this](const auto& jobs) -> Result<std::vector<BatchAnswer>> {
                                  ++questions_;
                                  if (is_silent_) return unavailable("no answer");
                                  return std::vector(jobs.size(), BatchAnswer{BatchState::kRunning, {}, {}});
                              }});
    }

    QueueStatusCache answers_;
    std::vector<BatchJobRef> jobs_ = {{"one", "/1"}, {"two", "/2"}};
    bool is_silent_ = false;
    int questions_ = 0;
};

TEST_F(BatchAnswersTest, OneQuestionServesEveryJobOfTheFacility) {
    EXPECT_EQ(ask("one", 0, 5000)->answer.state, BatchState::kRunning);
    EXPECT_EQ(ask("two", 0, 5400)->asked_ms, 5000) << "when it was asked, not when it is told";
    EXPECT_EQ(questions_, 1);
}

TEST_F(BatchAnswersTest, NobodyGetsOneAnswerTwiceOrAnOldOne) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    EXPECT_EQ(ask("one", 5000, 5400)->asked_ms, 5400) << "it has seen the first";
    EXPECT_EQ(ask("two", 5000, 5500)->asked_ms, 5400);
    EXPECT_EQ(ask("two", 0, 6400)->asked_ms, 6400) << "too old";
    EXPECT_EQ(questions_, 3);
}

TEST_F(BatchAnswersTest, AnAnswerFromBeforeTheClockWasSetBackIsOld) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    EXPECT_EQ(ask("two", 0, 4900)->asked_ms, 5000) << "a worker that began a little earlier";
    EXPECT_EQ(ask("two", 0, 100)->asked_ms, 100);
}

TEST_F(BatchAnswersTest, WhatWasSubmittedAfterAQuestionIsAskedFor) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    jobs_.push_back({"three", "/3"});
    EXPECT_EQ(ask("three", 0, 5100)->asked_ms, 5100);
    EXPECT_EQ(questions_, 2);
    EXPECT_EQ(ask("four", 0, 5200).error().code, ErrorCode::kUnavailable);
}

TEST_F(BatchAnswersTest, SilenceIsNoAnswerAndKeepsTheOldOne) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    is_silent_ = true;
    EXPECT_EQ(ask("one", 5000, 5400).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(ask("two", 0, 5500)->asked_ms, 5000);
}

}  // namespace
}  // namespace atl::dispatch
