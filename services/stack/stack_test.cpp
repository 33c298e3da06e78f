#include "services/stack/stack.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/stack/process.h"
#include "services/stack/testing/ordinary_user.h"
#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"

namespace atl::stack {
namespace {

// The database alone: the fastest real component, and the one with the most to get wrong.
class StackTest : public OrdinaryUserTest {
  protected:
    StackTest() {
        options_.state = directory_.path() / "state";
        options_.port_base = 0;
        options_.only = {"postgres"};
    }
    ~StackTest() override { (void)down(options_.state, true, quiet_); }

    Layout layout() const { return Layout{options_.state}; }
    int pid() const {
        const auto process = running_process(layout().pid_file("postgres"));
        return process ? process->pid : 0;
    }

    TemporaryDirectory directory_;
    UpOptions options_;
    Report quiet_ = [](const std::string&) {};
};

TEST_F(StackTest, ASecondUpChangesNothingThatRuns) {
    const auto first = up(options_, quiet_);
    ASSERT_TRUE(first.ok()) << first.error().message;
    const int before = pid();
    ASSERT_NE(before, 0);
    const auto second = up(options_, quiet_);
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_EQ(pid(), before);
    EXPECT_EQ(*first, *second) << "the ports stay, though any free ones were asked for again";
}

TEST_F(StackTest, ItsPublicAddressIsRememberedAndStaysWhileItRuns) {
    options_.address = PublicAddress{"https://coordinator.example.org", {}, {}, {}};
    const auto first = up(options_, quiet_);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(first->at("public").at("url"), "https://coordinator.example.org");
    options_.address.reset();
    EXPECT_EQ(*up(options_, quiet_), *first);
    options_.address = PublicAddress{"https://elsewhere.example.org", {}, {}, {}};
    const auto moved = up(options_, quiet_);
    ASSERT_FALSE(moved.ok());
    EXPECT_EQ(moved.error().code, ErrorCode::kConflict);
    EXPECT_EQ(read_stack_file(options_.state)->at("public"), first->at("public"));
}

TEST_F(StackTest, ItsProgramsAndJarsAreRemembered) {
    options_.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    options_.kafka_jars = directory_.path();
    const auto first = up(options_, quiet_);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(first->value("programs", ""), options_.programs.string());
    EXPECT_EQ(first->value("kafka_jars", ""), options_.kafka_jars.string());
    options_.programs.clear();
    options_.kafka_jars.clear();
    EXPECT_EQ(*up(options_, quiet_), *first);
    options_.only = {"kafka"};  // its jars are looked for where they were said to be
    EXPECT_EQ(up(options_, quiet_).error().field, "--kafka-jars");
}

TEST_F(StackTest, FlagsThatWhatRunsCannotTakeOverAreNamed) {
    options_.state = directory_.path();
    ASSERT_TRUE(make_directories(layout()).ok());
    const nlohmann::json stack = {{"ports", {{"gateway", 7400}}}, {"components", {"registry", "kafka"}}};
    ASSERT_TRUE(write_file_atomic(layout().file(), stack.dump()).ok());
    const auto start = [&](const std::string& name, const std::vector<std::string>& argv) {
        ASSERT_TRUE(start_recorded(argv, layout().pid_file(name), layout().log(name)).ok());
        // The kernel lets a parent go on before it shows the new program's arguments.
        while (command_line(running_process(layout().pid_file(name)).value()).size() != argv.size())
            std::this_thread::yield();
    };
    start("registry", {"/bin/sleep", "300"});
    start("kafka", {"/bin/sh", "-c", "sleep 300; :", "-cp", "/opt/kafka/libs/*"});
    options_.only = {"registry", "kafka"};
    options_.port_base = 9000;
    options_.programs = "/elsewhere";
    options_.kafka_jars = "/jars";
    options_.address = PublicAddress{"https://coordinator.example.org", {}, {}, {}};
    const auto refused = up(options_, quiet_);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    for (const char* line : {"--port-base 9000 (it has 7400)", "--programs /elsewhere (it has /bin)",
                             "--kafka-jars /jars (it has /opt/kafka/libs)",
                             "--public-url https://coordinator.example.org (it has none)", "`atoll down --state "})
        EXPECT_NE(refused.error().message.find(line), std::string::npos) << line << "\n" << refused.error().message;
    EXPECT_EQ(read_stack_file(options_.state).value(), stack) << "nothing changed";
    for (const char* name : {"registry", "kafka"})
        ASSERT_TRUE(stop_recorded(layout().pid_file(name), SIGKILL, std::chrono::seconds(5)).ok());
}

TEST_F(StackTest, UpStartsAgainWhatWasKilled) {
    ASSERT_TRUE(up(options_, quiet_).ok());
    const int before = pid();
    ASSERT_EQ(::kill(before, SIGKILL), 0);
    const auto again = up(options_, quiet_);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_NE(pid(), before);
    const auto components = stack::status(options_.state);
    ASSERT_TRUE(components.ok());
    ASSERT_EQ(components->size(), 1U);
    EXPECT_EQ(components->front().state, "ready");
}

TEST_F(StackTest, DownLeavesNothingRunningAndDeletesOnlyWhenAsked) {
    ASSERT_TRUE(up(options_, quiet_).ok());
    const auto first = down(options_.state, false, quiet_);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ(first->stopped, std::vector<std::string>{"postgres"});
    EXPECT_TRUE(first->killed.empty());
    EXPECT_EQ(stack::status(options_.state)->front().state, "stopped");
    EXPECT_TRUE(std::filesystem::exists(layout().postgres() / "data/PG_VERSION"));
    ASSERT_TRUE(down(options_.state, true, quiet_).ok());
    EXPECT_FALSE(std::filesystem::exists(layout().postgres()));
    EXPECT_TRUE(std::filesystem::exists(layout().log("postgres")));
}

TEST_F(StackTest, TheAdminsTokenIsValidAndPrivate) {
    ASSERT_TRUE(up(options_, quiet_).ok());
    const auto verifier = auth::Verifier::from_pem(read_file(layout().public_key()).value());
    ASSERT_TRUE(verifier.ok());
    const auto principal = verifier->verify(read_file(layout().token("admin")).value());
    ASSERT_TRUE(principal.ok()) << principal.error().message;
    EXPECT_EQ(principal->role, auth::Role::kAdmin);
    for (const auto& secret : {layout().token("admin"), layout().private_key()})
        EXPECT_EQ(std::filesystem::status(secret).permissions(), std::filesystem::perms(0600)) << secret;
}

TEST_F(StackTest, AStateDirectoryTooDeepForAUnixSocketWorks) {
    options_.state = directory_.path() / std::string(90, 'x') / "state";
    const auto stack = up(options_, quiet_);
    ASSERT_TRUE(stack.ok()) << stack.error().message;
    EXPECT_EQ(stack->at("postgres").get<std::string>().rfind("host='/tmp/atoll-", 0), 0U) << stack->at("postgres");
}

TEST_F(StackTest, AnUnknownComponentIsRefusedByName) {
    options_.only = {"postgres", "oracle"};
    const auto result = up(options_, quiet_);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().field, "--only");
    EXPECT_NE(result.error().message.find("oracle"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(options_.state)) << "nothing changed";
}

TEST_F(StackTest, WrongDirectoriesOfProgramsStartNothing) {
    options_.only = {"postgres", "kafka"};
    options_.kafka_jars = directory_.path();  // it is there, but holds no Kafka
    const auto without_jars = up(options_, quiet_);
    ASSERT_FALSE(without_jars.ok());
    EXPECT_EQ(without_jars.error().field, "--kafka-jars");
    options_.only = {"postgres", "registry"};
    options_.programs = directory_.path();
    const auto without_programs = up(options_, quiet_);
    ASSERT_FALSE(without_programs.ok());
    EXPECT_EQ(without_programs.error().field, "--programs");
    EXPECT_FALSE(std::filesystem::exists(options_.state)) << "nothing changed";
}

TEST_F(StackTest, ATakenPortIsNamed) {
    const http::TestServer other([](http::Server&) {});
    const std::string port = other.url().substr(other.url().rfind(':') + 1);
    options_.port_base = static_cast<std::uint16_t>(std::stoi(port));
    const auto result = up(options_, quiet_);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().field, "--port-base");
    EXPECT_NE(result.error().message.find(port), std::string::npos) << result.error().message;
}

TEST_F(StackTest, ThePortOfAnotherAtollIsToldAsSuch) {
    const http::TestServer other([](http::Server& server) {
        server.route(http::Method::kGet, "/registry/readyz", http::Access::open(),
                     [](const http::Request&) { return http::Response::text(200, "ready"); });
    });
    options_.port_base = static_cast<std::uint16_t>(std::stoi(other.url().substr(other.url().rfind(':') + 1)));
    const auto result = up(options_, quiet_);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("./dev demo --down"), std::string::npos) << result.error().message;
}

TEST_F(StackTest, APortThatWasTakenMeanwhileStartsNothing) {
    const http::TestServer other([](http::Server&) {});
    const int port = std::stoi(other.url().substr(other.url().rfind(':') + 1));
    options_.only = {"postgres", "gateway"};
    options_.port_base.reset();
    ASSERT_TRUE(make_directories(layout()).ok());
    const nlohmann::json before = {{"ports", {{"gateway", port}}}};
    ASSERT_TRUE(write_file_atomic(layout().file(), before.dump()).ok());
    const auto result = up(options_, quiet_);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().field, "--port-base");
    EXPECT_NE(result.error().message.find(std::to_string(port)), std::string::npos) << result.error().message;
    EXPECT_EQ(pid(), 0) << "nothing was started";
    EXPECT_EQ(read_stack_file(options_.state).value(), before);
}

TEST_F(StackTest, SettingsThatNoServiceCanHaveStartNothing) {
    options_.only = {"postgres", "store"};
    const std::string file = layout().settings().string();
    const std::map<std::string, std::string> wrong = {{"stor: {scrub_days: 3}", file + ": stor"},
                                                      {"store: 5", file + ": store"},
                                                      {"store: {root: /elsewhere}", file + ": store.root"},
                                                      {"7", file}};
    std::filesystem::create_directories(options_.state);
    for (const auto& [text, field] : wrong) {
        ASSERT_TRUE(write_file_atomic(file, text + "\n").ok());
        const auto result = up(options_, quiet_);
        ASSERT_FALSE(result.ok()) << text;
        EXPECT_EQ(result.error().field, field) << result.error().message;
        EXPECT_EQ(pid(), 0) << "nothing was started";
    }
}

TEST_F(StackTest, WhoTakesTheGatewaysPortWhileTheStackStartsIsNotTakenForIt) {
    std::unique_ptr<http::TestServer> thief;
    const auto take_port = [&](const std::string&) {  // the database is ready, the gateway is next
        if (thief != nullptr) return;
        http::ServerOptions taken;
        taken.port = ports_from_json(read_stack_file(options_.state)->at("ports")).gateway;
        const auto answer = [](http::Server& server) {
            for (const char* path :
                 {"/healthz", "/registry/readyz", "/store/readyz", "/dispatch/readyz", "/aggregation/readyz"})
                server.route(http::Method::kGet, path, http::Access::open(),
                             [](const http::Request&) { return http::Response::text(200, "ready"); });
        };
        thief = std::make_unique<http::TestServer>(answer, taken);
    };
    options_.only = {"postgres", "gateway"};
    const auto result = up(options_, take_port);
    ASSERT_NE(thief, nullptr);
    ASSERT_FALSE(result.ok()) << "a stranger said that it is ready";
    EXPECT_NE(result.error().message.find("Address already in use"), std::string::npos) << result.error().message;
    EXPECT_EQ(stack::status(options_.state)->back().state, "stopped");
    EXPECT_EQ(local_gateway(options_.state).error().code, ErrorCode::kUnavailable);
}

TEST_F(StackTest, WhatAnUpThatFailedHasMadeIsDeleted) {
    const http::TestServer other([](http::Server&) {});
    options_.port_base = static_cast<std::uint16_t>(std::stoi(other.url().substr(other.url().rfind(':') + 1)));
    ASSERT_FALSE(up(options_, quiet_).ok());
    ASSERT_TRUE(std::filesystem::exists(layout().state / "tokens"));
    ASSERT_TRUE(write_file_atomic(layout().state / "notes.txt", "mine").ok());
    ASSERT_TRUE(write_file_atomic(layout().private_key(), "a key").ok());
    EXPECT_EQ(down(options_.state, true, quiet_).error().code, ErrorCode::kConflict) << "a key may be needed";
    std::filesystem::remove(layout().private_key());
    const auto deleted = down(options_.state, true, quiet_);
    EXPECT_TRUE(deleted.ok()) << deleted.error().message;
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(layout().state))
        left.push_back(entry.path().filename());
    EXPECT_EQ(left, std::vector<std::string>{"notes.txt"});
    EXPECT_EQ(down(options_.state, true, quiet_).error().code, ErrorCode::kNotFound) << "no stack's directory any more";
}

TEST_F(StackTest, StatusAndDownWithoutAStackSaySo) {
    EXPECT_EQ(stack::status(options_.state).error().code, ErrorCode::kNotFound);
    EXPECT_EQ(down(options_.state, false, quiet_).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace atl::stack
