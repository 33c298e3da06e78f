// What `atoll up` leaves behind to look after a stack, and the units that it writes for systemd.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/json/json.h"
#include "tests/contract/running_stack.h"

namespace atl::contract {
namespace {

namespace fs = std::filesystem;
using json::Json;

// PostgreSQL and the registry, which need nothing else.
class SupervisionTest : public testing::Test {
  protected:
    SupervisionTest() {
        if (::geteuid() == 0) fs::permissions(directory_.path(), fs::perms(0711));  // another user runs root's stack
    }
    ~SupervisionTest() override { (void)atoll({"down"}); }

    CommandResult atoll(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), ATOLL_PROGRAM);
        arguments.insert(arguments.end(), {"--state", state_.string()});
        CommandOptions options;
        options.timeout = std::chrono::minutes(3);
        const auto done = run_command(arguments, options);
        check(done.ok(), "atoll cannot be run");
        return *done;
    }
    Json component(const std::string& name) const {
        const auto list = json::parse(atoll({"status", "--json"}).out);
        for (const Json& one : list.ok() ? *list : Json::array())
            if (one.at("name") == name) return one;
        return {};
    }
    // Whom a component runs as.
    uid_t user(const std::string& name) const {
        struct stat info{};
        return ::stat(("/proc/" + std::to_string(pid(name))).c_str(), &info) == 0 ? info.st_uid : 0;
    }
    pid_t pid(const std::string& name) const {
        const Json found = component(name);
        return found.is_object() ? found.at("pid").get<pid_t>() : 0;
    }

    TemporaryDirectory directory_{"atoll-supervised"};
    fs::path state_ = directory_.path() / "stack";
};

TEST_F(SupervisionTest, WhatIsKilledComesBackWithoutAPersonUntilTheStackIsDown) {
    const auto up = atoll({"up", "--only", "postgres,registry", "--port-base", "0"});
    ASSERT_EQ(up.exit_code, 0) << up.err;
    for (const char* name : {"registry", "postgres"}) {
        const pid_t before = pid(name);
        ASSERT_GT(before, 1) << name;
        ASSERT_EQ(::kill(before, SIGKILL), 0);
        EXPECT_TRUE(eventually([&] { return component(name).at("state") == "ready" && pid(name) != before; })) << name;
        EXPECT_GE(component(name).at("restarts"), 1) << name;
        EXPECT_NE(user(name), 0U) << name;
    }
    EXPECT_NE(atoll({"status"}).out.find(", last at "), std::string::npos) << atoll({"status"}).out;

    const pid_t supervisor = pid("supervisor");
    ASSERT_GT(supervisor, 1);
    EXPECT_NE(user("supervisor"), 0U);
    ASSERT_EQ(::kill(supervisor, SIGKILL), 0);
    EXPECT_TRUE(eventually([&] { return component("supervisor").at("state") == "stopped"; }));
    EXPECT_NE(atoll({"status"}).exit_code, 0);
    EXPECT_EQ(atoll({"up", "--only", "postgres,registry"}).exit_code, 0);
    EXPECT_EQ(component("supervisor").at("state"), "ready");
    const pid_t next = pid("supervisor");
    EXPECT_EQ(atoll({"up", "--only", "postgres,registry"}).exit_code, 0);
    EXPECT_EQ(pid("supervisor"), next) << "one is enough";

    EXPECT_EQ(atoll({"down"}).exit_code, 0);
    for (const char* name : {"registry", "postgres", "supervisor"}) EXPECT_EQ(pid(name), 0) << name;
    EXPECT_TRUE(eventually([&] { return ::kill(next, 0) != 0; }));  // an init may take its time to reap it
}

TEST_F(SupervisionTest, SystemdTakesTheUnitsAndWhatTheyRunIsTheStack) {
    const auto units = directory_.path() / "units";
    const auto up = atoll({"up", "--only", "postgres,registry,dispatch", "--port-base", "0", "--public-url", "http://c",
                           "--systemd", units.string()});
    ASSERT_EQ(up.exit_code, 0) << up.err;
    EXPECT_NE(up.err.find("WARNING: http://c is not encrypted"), std::string::npos) << up.err;
    EXPECT_EQ(component("postgres").at("state"), "stopped") << "systemd is to start it";
    std::vector<std::string> verify = {"systemd-analyze", "verify", "--man=no", (units / "atoll.target").string()};
    for (const char* name : {"postgres", "registry", "renewal"})
        verify.push_back((units / ("atoll-" + std::string(name) + ".service")).string());
    for (std::size_t i = 3; i < verify.size(); ++i) EXPECT_TRUE(fs::exists(verify[i])) << verify[i];
    const auto verified = run_command(verify);
    const bool is_refused = verified.ok() && verified->exit_code != 0;  // where systemd is installed
    EXPECT_FALSE(is_refused) << verified->out << verified->err;
    for (const char* name : {"postgres", "registry", "renewal"}) {
        const fs::path unit = units / ("atoll-" + std::string(name) + ".service");
        EXPECT_NE(read_file(unit)->find("\nNoNewPrivileges=yes\n"), std::string::npos) << name;
        if (::geteuid() != 0) continue;
        const auto rated = run_command({"systemd-analyze", "security", "--offline=yes", "--threshold=50", unit});
        const bool is_unsafe = rated.ok() && rated->exit_code != 0;
        EXPECT_FALSE(is_unsafe) << rated->out << rated->err;
    }
    EXPECT_EQ(read_file(units / "atoll-dispatch.service")->find("NoNewPrivileges"), std::string::npos)
        << "a local facility's jobs may need a setuid apptainer";

    EXPECT_NE(atoll({"up", "--only", "postgres,registry"}).err.find("systemctl start atoll.target"), std::string::npos);
    const auto daemon = start_daemon({ATOLL_PROGRAM, "component", "run", "postgres", "--state", state_.string()},
                                     {.log = directory_.path() / "postgres.log", .environment = {}, .directory = "/"});
    ASSERT_TRUE(daemon.ok());
    EXPECT_EQ(atoll({"component", "wait", "postgres"}).exit_code, 0);
    EXPECT_EQ(pid("postgres"), *daemon);
    EXPECT_NE(user("postgres"), 0U);
    const std::string unit = read_file(units / "atoll-postgres.service").value();
    EXPECT_EQ(unit.find("\nUser=") != std::string::npos, ::geteuid() == 0) << unit;
    const auto renewal = start_daemon({ATOLL_PROGRAM, "component", "renew", "--state", state_.string()},
                                      {.log = directory_.path() / "renewal.log", .environment = {}, .directory = "/"});
    ASSERT_TRUE(renewal.ok());
    const auto token = state_ / "tokens/aggregation.token";
    fs::remove(token);
    EXPECT_TRUE(eventually([&] { return fs::exists(token); }));
    EXPECT_EQ(::kill(*renewal, SIGTERM), 0);
    EXPECT_NE(atoll({"down"}).err.find("systemctl stop atoll.target"), std::string::npos);
    ::kill(*daemon, SIGINT);
    EXPECT_TRUE(eventually([&] { return pid("postgres") == 0; }));
    EXPECT_EQ(atoll({"up", "--only", "postgres", "--supervise"}).exit_code, 0) << "and back";
}

}  // namespace
}  // namespace atl::contract
