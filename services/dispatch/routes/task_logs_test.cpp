#include "services/dispatch/routes/task_logs.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <sstream>

namespace atl::dispatch {
namespace {

using Clock = std::chrono::steady_clock;
using json::Json;

Json place(const std::string& task) {
    return {{"round", 2},   {"kind", "train"}, {"facility", "leonardo"},
            {"task", task}, {"attempt", 1},    {"file", "stderr.log"}};
}

Json with(Json log, const std::string& member, const std::string& value) {
    log[member] = value;
    return log;
}

TEST(TaskLogsTest, SitesThatAreSlowToAnswerKeepNobodyWaitingForTheNext) {
    std::mutex mutex;
    std::condition_variable answered;
    bool has_answered = false;
    const LogSource healthy{place("healthy"), [&]() -> Result<std::string> {
                                const std::lock_guard lock(mutex);
                                has_answered = true;
                                answered.notify_all();
                                return std::string("line\n");
                            }};
    // Answers after the healthy one has.
    const LogSource slow{place("slow"), [&]() -> Result<std::string> {
                             std::unique_lock lock(mutex);
                             if (!answered.wait_for(lock, std::chrono::minutes(3), [&] { return has_answered; }))
                                 return std::string("waited in vain");
                             return Error{ErrorCode::kUnavailable, "no route to it", {}};
                         }};
    const Json unread = with(place("slow"), "error", "no route to it");
    EXPECT_EQ(gather_logs({slow, slow, slow, healthy}, Clock::now() + std::chrono::minutes(4)),
              (Json{unread, unread, unread, with(place("healthy"), "text", "line\n")}));
}

TEST(TaskLogsTest, WhatIsNotBegunBeforeTheDeadlineIsNamed) {
    bool was_read = false;
    const LogSource source{place("t"), [&]() -> Result<std::string> {
                               was_read = true;
                               return std::string("line");
                           }};
    const Json logs = gather_logs({source}, Clock::now());
    EXPECT_TRUE(logs.at(0).contains("error") && !logs.at(0).contains("text")) << logs;
    EXPECT_FALSE(was_read);
}

TEST(TaskLogsTest, ALogWhoseReadingThrowsIsNamedAndTheOthersAreRead) {
    const LogSource broken{place("broken"),
                           []() -> Result<std::string> { throw std::runtime_error("no such member"); }};
    const LogSource healthy{place("healthy"), []() -> Result<std::string> { return std::string("line\n"); }};
    EXPECT_EQ(gather_logs({broken, healthy}, Clock::now() + std::chrono::minutes(4)),
              (Json{with(place("broken"), "error", "no such member"), with(place("healthy"), "text", "line\n")}));
}

TEST(TaskLogsTest, OfNoTasksThereIsNothing) {
    EXPECT_EQ(gather_logs({}, Clock::now()), Json::array());
    EXPECT_EQ(logs_text(Json::array()), "");
}

TEST(TaskLogsTest, ALogThatNeedNotBeThereIsLeftOutWhereItSaysNothing) {
    const auto saying = [](const std::string& task, const std::string& text) {
        return LogSource{place(task), [text] { return Result<std::string>(text); }, true};
    };
    const LogSource broken{place("c"), [] { return Result<std::string>(unavailable("away")); }, true};
    EXPECT_EQ(gather_logs({saying("a", ""), saying("b", "module: not found\n"), broken},
                          Clock::now() + std::chrono::minutes(4)),
              Json::array({with(place("b"), "text", "module: not found\n")}));
}

TEST(TaskLogsTest, PeopleReadEachLogUnderItsHeading) {
    EXPECT_EQ(logs_text({with(place("t"), "text", "one\ntwo"), with(place("u"), "error", "no route to it")}),
              "== round 2, train at leonardo, task t, attempt 1: stderr.log\n  one\n  two\n"
              "== round 2, train at leonardo, task u, attempt 1: stderr.log\n  no route to it\n");
}

TEST(TaskLogsTest, NoLineOfASiteIsTakenForAHeading) {
    const std::string forged = "== round 2, train at karolina, task u, attempt 1: stderr.log\nfatal\n";
    std::istringstream text(logs_text(Json::array({with(place("t"), "text", "a\n" + forged + "\r" + forged)})));
    int headings = 0;
    for (std::string line; std::getline(text, line);) headings += line.starts_with("==") ? 1 : 0;
    EXPECT_EQ(headings, 1) << text.str();
    EXPECT_EQ(text.str().find("\r=="), std::string::npos) << text.str();
}

}  // namespace
}  // namespace atl::dispatch
