#include "services/dispatch/work/answer_cache.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

class AnswerCacheTest : public testing::Test {
  protected:
    static Task task(const std::string& id) {
        Task task;
        task.id = id;
        task.facility = "leonardo";
        task.attempt = Attempt();
        return task;
    }
    // Answers are numbered in the order in which they were made.
    Result<AnswerCache<int>::Found> ask(const std::string& id, std::int64_t seen_ms, std::int64_t now_ms) {
        const Task asking = task(id);
        return answers_.find({asking, seen_ms, 1000, now_ms, [this](int answer) { return answer > unusable_; },
                              [this]() -> Result<std::vector<Task>> { return tasks_; },
                              [this](const auto& tasks) -> Result<std::vector<int>> {
                                  ++questions_;
                                  if (is_silent_) return unavailable("no answer");
                                  std::vector<int> answers;
                                  for (std::size_t i = 0; i < tasks.size(); ++i) answers.push_back(++made_);
                                  return answers;
                              }});
    }

    AnswerCache<int> answers_;
    std::vector<Task> tasks_ = {task("one"), task("two")};
    bool is_silent_ = false;
    int unusable_ = 0;
    int made_ = 0;
    int questions_ = 0;
};

TEST_F(AnswerCacheTest, OneQuestionServesEveryTaskOfTheFacility) {
    EXPECT_EQ(ask("one", 0, 5000)->answer, 1);
    EXPECT_EQ(ask("two", 0, 5400)->asked_ms, 5000) << "when it was asked, not when it is told";
    EXPECT_EQ(questions_, 1);
}

TEST_F(AnswerCacheTest, NobodyGetsOneAnswerTwiceOrAnOldOne) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    EXPECT_EQ(ask("one", 5000, 5400)->asked_ms, 5400) << "it has seen the first";
    EXPECT_EQ(ask("two", 5000, 5500)->asked_ms, 5400);
    EXPECT_EQ(ask("two", 0, 6400)->asked_ms, 6400) << "too old";
    EXPECT_EQ(questions_, 3);
}

TEST_F(AnswerCacheTest, AnAnswerFromBeforeTheClockWasSetBackIsOld) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    EXPECT_EQ(ask("two", 0, 4900)->asked_ms, 5000) << "a worker that began a little earlier";
    EXPECT_EQ(ask("two", 0, 100)->asked_ms, 100);
}

TEST_F(AnswerCacheTest, WhatWasSubmittedAfterAQuestionIsAskedFor) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    tasks_.push_back(task("three"));
    EXPECT_EQ(ask("three", 0, 5100)->asked_ms, 5100);
    EXPECT_EQ(ask("four", 0, 5200).error().code, ErrorCode::kUnavailable);
    tasks_.clear();
    EXPECT_EQ(ask("one", 5100, 5300).error().code, ErrorCode::kUnavailable) << "it has ended meanwhile";
    EXPECT_EQ(questions_, 2) << "nothing is asked for nobody";
}

TEST_F(AnswerCacheTest, SilenceIsNoAnswerAndKeepsTheOldOne) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    is_silent_ = true;
    EXPECT_EQ(ask("one", 5000, 5400).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(ask("two", 0, 5500)->asked_ms, 5000);
}

TEST_F(AnswerCacheTest, AnAnswerThatIsOfNoUseIsAskedForAgain) {
    ASSERT_TRUE(ask("one", 0, 5000).ok());
    unusable_ = 2;
    EXPECT_EQ(ask("two", 0, 5100)->answer, 4);
}

}  // namespace
}  // namespace atl::dispatch
