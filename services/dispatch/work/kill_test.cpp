#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "services/dispatch/testing/test_dispatch.h"

namespace atl::dispatch {
namespace {

using json::Json;

// The program atoll-dispatch itself, killed without warning.
class KillTest : public DispatchTest {
  protected:
    void SetUp() override {
        DispatchTest::SetUp();
        if (IsSkipped()) return;
        port_ = free_port();
        config_ = config_file(port_);
        base_url_ = "http://127.0.0.1:" + std::to_string(port_);
    }
    void TearDown() override {
        program_.kill();
        DispatchTest::TearDown();
    }
    void start_program() { program_.start(config_, directory_.path() / "dispatch.log", environment_); }
    bool is_ready() {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.attempts_max = 1;
        http::Client probe(options);
        return eventually([&] {
            const auto answer = probe.call(http::Method::kGet, "/readyz");
            return answer.ok() && answer->status == 200;
        });
    }
    std::string job_state(const std::string& job) {
        auto connection = connect();
        return connection.query("SELECT state FROM jobs WHERE id = $1", {job})->text(0, "state");
    }

    std::uint16_t port_ = 0;
    std::filesystem::path config_;
    std::map<std::string, std::string> environment_;
    TestDispatch program_;
};

// A place in the course of a training where the site's programs can be made to wait.
struct Instant {
    const char* step;     // of the attempt
    const char* program;  // of the site that waits in it, and that notes each of its starts
};

class KillInstantTest : public KillTest, public testing::WithParamInterface<Instant> {
  protected:
    // The site's `sync`, which the local batch system calls before a submission has taken effect.
    void add_slow_sync() {
        constexpr const char* kSync = R"sh(#!/bin/sh
here=${0%/*}/programs
case $1 in process.*) echo "$1" >>"$here/sync"; while [ -e "$here/sync.waits" ]; do sleep 0.05; done ;; esac
exec /bin/sync "$@"
)sh";
        const auto file = directory_.path() / "sync";
        ASSERT_TRUE(write_file_atomic(file, kSync).ok());
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
        environment_["PATH"] = directory_.path().string() + ":" + std::getenv("PATH");
    }
    bool both_are_at(const std::string& step) {
        auto connection = connect();
        return connection.query("SELECT 1 FROM attempts WHERE step = $1", {step})->size() == 2;
    }
};

TEST_P(KillInstantTest, AJobGoesOnAndTrainsOnce) {
    const auto [step, program] = GetParam();
    add_slow_sync();
    start_program();
    ASSERT_TRUE(is_ready()) << read_file(directory_.path() / "dispatch.log").value();
    add_facilities();
    ASSERT_TRUE(write_file_atomic(fake(std::string(program) + ".waits"), "").ok());
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    const std::string notes = std::string(program) == "train" ? "runs" : program;
    ASSERT_TRUE(eventually([&] { return lines(notes).size() == 2 && both_are_at(step); })) << lines(notes).size();
    program_.kill();
    start_program();
    ASSERT_TRUE(is_ready());
    std::filesystem::remove(fake(std::string(program) + ".waits"));
    ASSERT_TRUE(eventually([&] { return job_state(job) != "running"; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2) << read_file(directory_.path() / "dispatch.log").value();
    EXPECT_EQ(job_state(job), "completed") << get("/v1/jobs/" + job).at("error");
    std::map<std::string, int> starts;
    for (const auto& line : lines("runs")) ++starts[line.substr(0, line.find(' '))];
    EXPECT_EQ(starts.size(), 2U) << "no attempt was lost";
    for (const auto& [name, count] : starts) EXPECT_EQ(count, 1) << name;
    const auto closed = aggregation_->closed_rounds();
    ASSERT_EQ(closed.size(), 1U);
    EXPECT_EQ(closed[0].at("updates").size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(While, KillInstantTest,
                         testing::Values(Instant{"staging", "stage"}, Instant{"submitting", "sync"},
                                         Instant{"running", "train"}, Instant{"collecting", "push"}),
                         [](const auto& one) { return std::string(one.param.step); });

TEST_F(KillTest, WhatItHeldWhenItWasKilledIsTakenUpAtOnceByItsNextProcess) {
    config_ = config_file(port_, /*lease_s=*/600);  // far longer than this test waits
    start_program();
    ASSERT_TRUE(is_ready()) << read_file(directory_.path() / "dispatch.log").value();
    add_facilities();
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return lines("stage").size() == 2; }));
    program_.kill();
    std::filesystem::remove(fake("stage.waits"));
    start_program();
    EXPECT_TRUE(eventually([&] { return job_state(job) == "completed"; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2) << read_file(directory_.path() / "dispatch.log").value();
}

TEST_F(KillTest, AJobSurvivesKillsAtRandomInstantsAndTrainsEachAttemptOnce) {
    start_program();
    ASSERT_TRUE(is_ready()) << read_file(directory_.path() / "dispatch.log").value();
    add_facilities();
    const std::string job = submit(job_request(2));
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int kills = 0;
    const auto is_over = [&] { return job_state(job) != "running"; };
    for (; kills < 6 && !is_over(); ++kills) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 900));  // the instant of the kill
        program_.kill();
        start_program();
    }
    ASSERT_TRUE(eventually(is_over)) << get("/v1/jobs/" + job + "/rounds").dump(2)
                                     << read_file(directory_.path() / "dispatch.log").value();
    ASSERT_TRUE(is_ready());
    EXPECT_EQ(job_state(job), "completed") << get("/v1/jobs/" + job).at("error");
    std::map<std::string, int> starts;
    for (const auto& line : lines("runs"))
        if (line.find(" train ") != std::string::npos) ++starts[line.substr(0, line.find(' '))];
    EXPECT_EQ(starts.size(), 4U) << "two participants, two rounds, no attempt was lost";
    for (const auto& [name, count] : starts) EXPECT_EQ(count, 1) << name;
    EXPECT_EQ(aggregation_->closed_rounds().size(), 2U) << "each round closed once";
    std::cout << kills << " kills\n";
}

}  // namespace
}  // namespace atl::dispatch
