#include "services/stack/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "services/stack/component.h"
#include "services/stack/process.h"
#include "services/stack/stack.h"
#include "services/stack/testing/ordinary_user.h"
#include "shared/auth/auth.h"
#include "shared/base/file.h"

namespace atl::stack {
namespace {

bool eventually(const std::function<bool()>& condition, std::chrono::seconds patience = std::chrono::minutes(2)) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
}

class SupervisorTest : public OrdinaryUserTest {
  protected:
    SupervisorTest() {
        options_.state = directory_.path() / "state";
        options_.port_base = 0;
    }
    ~SupervisorTest() override {
        supervisor_ = {};
        (void)down(options_.state, true, quiet_);
    }

    Layout layout() const { return Layout{options_.state}; }
    pid_t pid(const std::string& component) const {
        const auto process = running_process(layout().pid_file(component));
        return process ? process->pid : 0;
    }
    void start_supervisor() {
        supervisor_ = std::jthread(
            [this](const std::stop_token& stop) { EXPECT_TRUE(supervise(options_.state, quiet_, stop).ok()); });
    }

    TemporaryDirectory directory_;
    UpOptions options_;
    Report quiet_ = [](const std::string&) {};
    std::jthread supervisor_;
};

TEST_F(SupervisorTest, WhatIsKilledIsStartedAgainAndCounted) {
    options_.only = {"postgres"};
    const auto description = up(options_, quiet_);
    ASSERT_TRUE(description.ok()) << description.error().message;
    start_supervisor();
    for (int round = 1; round <= 2; ++round) {
        const pid_t before = pid("postgres");
        ASSERT_GT(before, 1);
        ASSERT_EQ(::kill(before, SIGKILL), 0);
        ASSERT_TRUE(eventually([&] { return pid("postgres") != 0 && pid("postgres") != before; },
                               std::chrono::seconds(5)))  // as promised
            << round;
        EXPECT_TRUE(eventually([&] { return stack::status(options_.state)->front().state == "ready"; }));
        EXPECT_GE(stack::status(options_.state)->front().restarts.count, round);
    }
}

// Tokens that began half a year ago and more, as after so long a time without `atoll up`.
TEST_F(SupervisorTest, TokensAreRenewedAtHalfTheirLife) {
    ASSERT_TRUE(make_directories(layout()).ok());
    ASSERT_TRUE(make_credentials(layout()).ok());
    const auto issuer = auth::Issuer::from_pem(read_file(layout().private_key()).value()).value();
    const auto begin_with = [&](const char* name, int days) {
        const auto token =
            issuer.issue({.subject = name, .role = auth::Role::kOperator}, std::chrono::hours(24 * days)).value();
        EXPECT_TRUE(write_file_atomic(layout().token(name), token, 0600).ok());
        return token;
    };
    const auto token = [&](const char* name) { return read_file(layout().token(name)).value(); };
    const std::string old = begin_with("aggregation", 180), young = begin_with("operator", 185);
    const nlohmann::json description = {{"components", nlohmann::json::array()}, {"programs", directory_.path()}};
    ASSERT_TRUE(write_file_atomic(layout().file(), description.dump()).ok());
    start_supervisor();
    ASSERT_TRUE(eventually([&] { return token("aggregation") != old; }));
    EXPECT_EQ(token("operator"), young);
    const auto verifier = auth::Verifier::from_pem(read_file(layout().public_key()).value()).value();
    const auto principal = verifier.verify(token("aggregation"));
    ASSERT_TRUE(principal.ok());
    EXPECT_GT(principal->expires_unix_s, std::time(nullptr) + 364 * 86400);
}

// A component that writes when it was started and ends at once.
TEST_F(SupervisorTest, WhatEndsAgainAndAgainIsStartedAfterLongerPauses) {
    ASSERT_TRUE(make_directories(layout()).ok());
    const auto program = directory_.path() / "atoll-registry", starts = directory_.path() / "starts";
    ASSERT_TRUE(write_file_atomic(program, "#!/bin/sh\ndate +%s%N >>'" + starts.string() + "'\n", 0700).ok());
    const nlohmann::json description = {{"components", {"registry"}}, {"programs", directory_.path()}};
    ASSERT_TRUE(write_file_atomic(layout().file(), description.dump()).ok());
    start_supervisor();
    std::vector<std::int64_t> times_ns;
    ASSERT_TRUE(eventually([&] {
        std::istringstream lines(read_file(starts).ok() ? *read_file(starts) : "");
        times_ns.clear();
        for (std::int64_t time_ns = 0; lines >> time_ns;) times_ns.push_back(time_ns);
        return times_ns.size() >= 4;
    }));
    constexpr std::int64_t kSecond = 1'000'000'000;
    EXPECT_GE(times_ns[2] - times_ns[1], kSecond);
    EXPECT_GE(times_ns[3] - times_ns[2], 2 * kSecond);
}

TEST_F(SupervisorTest, WhatCannotBeStartedIsToldWithTheReason) {
    ASSERT_TRUE(make_directories(layout()).ok());
    const nlohmann::json description = {{"components", {"registry"}}, {"programs", directory_.path()}};
    ASSERT_TRUE(write_file_atomic(layout().file(), description.dump()).ok());
    ASSERT_TRUE(write_file_atomic(layout().settings(), "registry: {port: 80}\n").ok());
    start_supervisor();
    EXPECT_TRUE(eventually([&] { return !stack::status(options_.state)->front().restarts.error.empty(); }));
    EXPECT_NE(stack::status(options_.state)->front().restarts.error.find("registry"), std::string::npos);
}

TEST(SupervisedTest, WaitingIsEnoughForWhatTheSupervisorStartsAgain) {
    const ComponentStatus store{.name = "store", .state = "ready", .address = "", .pid = 7, .uptime_s = 900};
    const ComponentStatus supervisor{.name = kSupervisor, .state = "ready", .address = "", .pid = 8, .uptime_s = 900};
    ComponentStatus ended = store, starting = store, frozen = store, faulty = store, gone = supervisor;
    ended.state = gone.state = faulty.state = "stopped";
    ended.pid = gone.pid = faulty.pid = 0;
    starting.state = frozen.state = "not ready";
    starting.uptime_s = 2;
    faulty.restarts.error = "port 80 is taken by another program";
    EXPECT_TRUE(is_starting_again({ended, supervisor}));
    EXPECT_TRUE(is_starting_again({starting, supervisor}));
    EXPECT_FALSE(is_starting_again({ended, gone}));
    EXPECT_FALSE(is_starting_again({ended})) << "nobody starts it";
    EXPECT_FALSE(is_starting_again({ended, faulty, supervisor}));
    EXPECT_FALSE(is_starting_again({frozen, supervisor})) << "what lives is left alone";
    ComponentStatus kafka = ended, postgres = store;
    kafka.name = "kafka";
    postgres.name = "postgres";
    EXPECT_TRUE(is_starting_again({postgres, kafka, frozen, supervisor})) << "it comes with Kafka";
    kafka.state = "ready";
    kafka.pid = 9;
    kafka.uptime_s = 5;
    EXPECT_TRUE(is_starting_again({postgres, kafka, frozen, supervisor})) << "some seconds after Kafka";
    kafka.uptime_s = 900;
    EXPECT_FALSE(is_starting_again({postgres, kafka, frozen, supervisor}));
    kafka.state = "not ready";
    std::vector<ComponentStatus> all = {postgres, kafka, frozen};
    note_what_they_wait_for(all);
    EXPECT_EQ(all[1].waits_for, "");
    EXPECT_EQ(all[2].waits_for, "kafka");
}

TEST_F(SupervisorTest, AGatewayThatItStartsAgainIsWaitedFor) {
    ASSERT_TRUE(make_directories(layout()).ok());
    const nlohmann::json stack = {{"components", nlohmann::json::array()},
                                  {"programs", directory_.path()},
                                  {"gateway_socket", "unix:" + layout().socket("gateway").string()}};
    ASSERT_TRUE(write_file_atomic(layout().file(), stack.dump()).ok());
    EXPECT_NE(supervised_gateway(options_.state).error().message.find("atoll up"), std::string::npos);
    const auto pid_file = layout().pid_file(kSupervisor);
    ASSERT_TRUE(start_recorded({"sleep", "1000"}, pid_file, directory_.path() / "log").ok());
    const Error error = supervised_gateway(options_.state).error();
    EXPECT_NE(error.message.find("the supervisor starts it again"), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find("atoll up"), std::string::npos) << error.message;
    EXPECT_TRUE(stop_recorded(pid_file, SIGTERM, std::chrono::minutes(1)).ok());
}

TEST_F(SupervisorTest, ItEndsWithItsStack) {
    start_supervisor();
    supervisor_.join();  // there is none
    EXPECT_TRUE(read_restarts(layout()).empty());
}

}  // namespace
}  // namespace atl::stack
