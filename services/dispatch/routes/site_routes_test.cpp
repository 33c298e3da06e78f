// Who asks sites by REST, and whom that holds up.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "services/dispatch/testing/job_lifecycle_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

class SiteRoutesTest : public JobLifecycleTest {
  protected:
    void SetUp() override {
        JobLifecycleTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        begin();
    }
    void TearDown() override {
        let_answer();
        JobLifecycleTest::TearDown();
    }
    // A facility for everybody whose login node's shell stands still until let_answer().
    void add_hung_facility() {
        std::filesystem::create_directories(fake("hung"));
        const std::string wait = "#!/bin/sh\necho >>" + fake("hung/asked").string() + "\nwhile [ ! -e " +
                                 fake("answers").string() + " ]; do sleep 0.05; done\nexec /usr/bin/";
        for (const std::string tool : {"uname", "wc"})
            ASSERT_TRUE(write_file_atomic(fake("hung/" + tool), wait + tool + " \"$@\"\n", 0755).ok());
        std::filesystem::create_directories(work_dir("hung"));
        const auto added = client().post_json(
            "/v1/facilities", {{"name", "hung"},
                               {"transport", {{"kind", "local"}}},
                               {"batch", {{"kind", "local"}, {"slots", 2}}},
                               {"environment", {{"PATH", fake("hung").string() + ":" + ::getenv("PATH")}}},
                               {"allow", {"*"}},
                               {"work_dir", work_dir("hung").string()}});
        ASSERT_TRUE(added.ok()) << added.error().message;
    }
    void let_answer() { set("answers"); }
};

TEST_F(SiteRoutesTest, QuestionsToASiteThatNeverAnswersHoldUpNobodyElse) {
    constexpr int kAsked = 24;  // more than the server has threads
    add_hung_facility();
    std::atomic<int> refused = 0;
    std::atomic<int> answered = 0;
    {
        std::vector<std::jthread> questions;
        for (int i = 0; i < kAsked; ++i)
            questions.emplace_back([&] {
                const auto answer = client_of("bob").call(Method::kPost, "/v1/facilities/hung/check", "{}").value();
                if (answer.status == 429) ++refused;
                if (answer.status == 200) ++answered;
            });
        EXPECT_TRUE(eventually([&] { return refused >= kAsked / 2; })) << refused;
        EXPECT_EQ(client_of("eve").call(Method::kGet, "/v1/jobs")->status, 200);
        EXPECT_EQ(client().call(Method::kPost, "/v1/facilities/leonardo/check", "{}")->status, 200);
        let_answer();
    }
    EXPECT_EQ(refused + answered, kAsked);
}

TEST_F(SiteRoutesTest, LogsOfASiteAreForTheJobsOwnerAndForWhomTheFacilityAllows) {
    for (const char* name : {"leonardo", "karolina"}) set_allowed(name, "bob");
    set("train.waits");
    const std::string job = client_of("bob").post_json("/v1/jobs", job_request(1)).value().at("id");
    ASSERT_TRUE(eventually([&] { return lines("runs").size() >= 2; }));
    const auto seen_by = [&](const std::string& who) {
        const Json logs = client_of(who).get_json("/v1/jobs/" + job + "/logs?format=json").value();
        std::set<std::string> seen;
        for (const Json& log : logs.at("items"))
            seen.insert(log.at("facility").get<std::string>() + (log.contains("text") ? "" : " is not for you"));
        return seen;
    };
    using Seen = std::set<std::string>;
    EXPECT_EQ(seen_by("bob"), (Seen{"karolina", "leonardo"}));
    EXPECT_EQ(seen_by("eve"), (Seen{"karolina is not for you", "leonardo is not for you"}));
    set_allowed("karolina", "eve");
    EXPECT_EQ(seen_by("eve"), (Seen{"karolina", "leonardo is not for you"}));
    EXPECT_EQ(seen_by("bob"), (Seen{"karolina", "leonardo"})) << "the job is still his";
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(eventually([&] { return state_of(job) == "completed"; }));
    EXPECT_EQ(seen_by("eve"), (Seen{"karolina", "leonardo is not for you"})) << "what is kept of them, too";
}

}  // namespace
}  // namespace atl::dispatch
