#include "services/dispatch/routes/task_logs.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace atl::dispatch {
namespace {

using Clock = std::chrono::steady_clock;

TEST(TaskLogsTest, SitesThatAreSlowToAnswerKeepNobodyWaitingForTheNext) {
    std::mutex mutex;
    std::condition_variable answered;
    bool has_answered = false;
    const LogSource healthy{"healthy", [&]() -> Result<std::string> {
                                const std::lock_guard lock(mutex);
                                has_answered = true;
                                answered.notify_all();
                                return std::string("line\n");
                            }};
    // Answers after the healthy one has.
    const LogSource slow{"slow", [&]() -> Result<std::string> {
                             std::unique_lock lock(mutex);
                             if (!answered.wait_for(lock, std::chrono::seconds(20), [&] { return has_answered; }))
                                 return std::string("waited in vain");
                             return Error{ErrorCode::kUnavailable, "no route to it", {}};
                         }};
    EXPECT_EQ(gather_logs({slow, slow, slow, healthy}, Clock::now() + std::chrono::minutes(1)),
              "== slow\nno route to it\n== slow\nno route to it\n== slow\nno route to it\n== healthy\nline\n");
}

TEST(TaskLogsTest, WhatIsNotBegunBeforeTheDeadlineIsNamed) {
    bool was_read = false;
    const LogSource source{"task t", [&]() -> Result<std::string> {
                               was_read = true;
                               return std::string("line");
                           }};
    const std::string all = gather_logs({source}, Clock::now());
    EXPECT_TRUE(all.starts_with("== task t\nnot read: other sites took too long")) << all;
    EXPECT_FALSE(was_read);
}

TEST(TaskLogsTest, OfNoTasksThereIsNothing) {
    EXPECT_EQ(gather_logs({}, Clock::now()), "");
}

}  // namespace
}  // namespace atl::dispatch
