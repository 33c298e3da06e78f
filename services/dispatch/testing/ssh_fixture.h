#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "services/dispatch/sites/transport/transport.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "tests/integration/test_stack.h"

namespace atl::dispatch {

inline constexpr const char* kSshd = "/usr/sbin/sshd";

// A process and all that descend from it. A detached batch job does not.
inline std::vector<pid_t> family_of(pid_t ancestor) {
    std::multimap<pid_t, pid_t> children;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const auto stat = read_file(entry.path() / "stat");
        int parent = 0;
        if (stat.ok() && std::sscanf(stat->c_str() + stat->rfind(')') + 1, " %*c %d", &parent) == 1)
            children.emplace(parent, std::atoi(entry.path().filename().c_str()));
    }
    std::vector<pid_t> family = {ancestor};
    for (std::size_t i = 0; i < family.size(); ++i) {
        const auto [first, last] = children.equal_range(family[i]);
        for (auto child = first; child != last; ++child) family.push_back(child->second);
    }
    return family;
}

// The ssh transport against a real sshd on loopback, with keys of its own and a login shell that talks too much.
class SshTransportTest : public testing::Test {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(kSshd)) GTEST_SKIP() << "no sshd: install openssh-server to run this test";
        port_ = std::to_string(free_port());
        make_key("host");
        make_key("user");
        std::filesystem::create_directory(file("control"));
        std::filesystem::permissions(file("control"), std::filesystem::perms::owner_all);
        write("known_hosts", "[127.0.0.1]:" + port_ + " " + read_file(file("host.pub")).value());
        std::filesystem::create_directory(file("home"));  // without the files that a shell of whoever tests reads
        write("sshd_config", "Port " + port_ + "\nListenAddress 127.0.0.1\nHostKey " + file("host") +
                                 "\nAuthorizedKeysFile " + file("user.pub") +
                                 "\nStrictModes no\nUsePAM no\nLogLevel VERBOSE\nPermitRootLogin yes\nPidFile none\n"
                                 "SetEnv HOME=" +
                                 file("home") +
                                 "\nForceCommand echo Welcome to the site; eval \"$SSH_ORIGINAL_COMMAND\"\n");
        write("ssh_config", "Host site\n  HostName 127.0.0.1\n  Port " + port_ + "\n  IdentityFile " + file("user") +
                                "\n  IdentitiesOnly yes\n  UserKnownHostsFile " + file("known_hosts") + "\n");
        settings_.logins_max = 100;  // all the facilities of a test are one machine
        transport_ = make_transport();
        start_sshd();
    }
    void TearDown() override {
        transport_.reset();
        if (server_ > 0) stop_sshd();
    }

    // What dispatch keeps for one facility.
    std::shared_ptr<Transport> make_transport(const std::string& facility = "site",
                                              const std::string& config = "ssh_config",
                                              const std::string& host_key = "") {
        return make_ssh_transport(facility, {TransportKind::kSsh, "site", file(config), host_key}, settings_);
    }
    // The ssh configuration with something else in it.
    void write_config(const std::string& name, const std::string& from, const std::string& to) {
        std::string config = read_file(file("ssh_config")).value();
        config.replace(config.find(from), from.size(), to);
        write(name, config);
    }
    static Error error_of(Transport& transport, bool is_asked_for = false) {
        RemoteScript script{":", {}, {}};
        script.is_asked_for = is_asked_for;
        const auto result = transport.run(script);
        EXPECT_FALSE(result.ok());
        return result.ok() ? Error() : result.error();
    }
    // As if so long had passed since every login that is counted.
    void let_logins_age(std::chrono::milliseconds age) {
        for (const auto& entry : std::filesystem::directory_iterator(file("control"))) {
            if (entry.path().extension() != ".logins") continue;
            std::istringstream times(read_file(entry.path()).value());
            std::string older;
            for (std::int64_t time = 0; times >> time;) older += std::to_string(time - age.count()) + "\n";
            ASSERT_TRUE(write_file_atomic(entry.path(), older, 0600).ok());
        }
    }
    static bool answers(Transport& transport) { return transport.run({":", {}, {}}).ok(); }

    // How many lines of sshd's log say so.
    std::size_t count_in_log(const std::string& words) const {
        const std::string log = read_file(file("sshd.log")).value();
        std::size_t count = 0;
        for (std::size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++count;
        return count;
    }
    std::size_t connections() const { return count_in_log("Connection from 127.0.0.1"); }
    std::size_t logins() const { return count_in_log("Accepted publickey"); }

    std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
    void write(const std::string& name, const std::string& text) {
        ASSERT_TRUE(write_file_atomic(file(name), text, 0600).ok());
    }
    void make_key(const std::string& name) {
        const auto made = run_command({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file(name)});
        ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->err;
    }
    void start_sshd() {
        if (::getuid() == 0) std::filesystem::create_directories("/run/sshd");
        const auto started = start_daemon({kSshd, "-D", "-e", "-f", file("sshd_config")},
                                          {.log = file("sshd.log"), .environment = {}, .directory = {}});
        ASSERT_TRUE(started.ok()) << started.error().message;
        server_ = *started;
        ASSERT_TRUE(eventually([&] { return transport_->run({":", {}, {}}).ok(); }))
            << read_file(file("sshd.log")).value();
    }
    void break_connections() {
        for (const pid_t process : family_of(server_))
            if (process != server_) ::kill(process, SIGKILL);
        EXPECT_TRUE(eventually([&] { return family_of(server_).size() == 1; }));
    }
    // The listener and every connection of it.
    void stop_sshd() {
        for (const pid_t process : family_of(server_)) ::kill(process, SIGKILL);
        ::waitpid(server_, nullptr, 0);
        server_ = 0;
    }

    TemporaryDirectory directory_;
    SshSettings settings_{.control_directory = directory_.path() / "control"};
    std::string port_;
    pid_t server_ = 0;
    std::shared_ptr<Transport> transport_;
};

}  // namespace atl::dispatch
