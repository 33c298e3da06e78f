#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"
#include "tests/integration/test_stack.h"

// The ssh transport against a real sshd on loopback, with keys of its own and a login shell that talks too much.
namespace atl::dispatch {
namespace {

constexpr const char* kSshd = "/usr/sbin/sshd";

// A process and all that descend from it. A detached batch job does not.
std::vector<pid_t> family_of(pid_t ancestor) {
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
        write("sshd_config", "Port " + port_ + "\nListenAddress 127.0.0.1\nHostKey " + file("host") +
                                 "\nAuthorizedKeysFile " + file("user.pub") +
                                 "\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
                                 "ForceCommand echo Welcome to the site; eval \"$SSH_ORIGINAL_COMMAND\"\n");
        write("ssh_config", "Host site\n  HostName 127.0.0.1\n  Port " + port_ + "\n  IdentityFile " + file("user") +
                                "\n  IdentitiesOnly yes\n  UserKnownHostsFile " + file("known_hosts") + "\n");
        transport_ = make_ssh_transport({"ssh", "site", file("ssh_config")}, file("control"));
        start_sshd();
    }
    void TearDown() override {
        if (server_ <= 0) return;
        (void)run_command(
            {"ssh", "-F", file("ssh_config"), "-o", "ControlPath=" + file("control") + "/%C", "-O", "exit", "site"});
        stop_sshd();
    }

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
    // The listener and every connection of it.
    void stop_sshd() {
        for (const pid_t process : family_of(server_)) ::kill(process, SIGKILL);
        ::waitpid(server_, nullptr, 0);
        server_ = 0;
    }

    TemporaryDirectory directory_;
    std::string port_;
    pid_t server_ = 0;
    std::shared_ptr<Transport> transport_;
};

TEST_F(SshTransportTest, ArgumentsInputOutputAndStatusArriveAsTheyAre) {
    const std::string odd = "it's $HOME \"`x`\"\nsecond line";
    std::string input(200000, 'x');
    input += std::string("\0\xff\n", 3);
    const auto result = transport_->run({"printf '%s' \"$1\"; wc -c; echo problem >&2; exit 255", {odd}, input});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->out, odd + "200003\n");
    EXPECT_NE(result->err.find("problem\n"), std::string::npos);
    EXPECT_EQ(result->exit_code, 255) << "a status that ssh itself uses, known all the same";
}

TEST_F(SshTransportTest, OneConnectionServesMany) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(transport_->run({":", {}, {}}).ok());
    const std::string log = read_file(file("sshd.log")).value();
    std::size_t logins = 0;
    for (std::size_t at = log.find("Accepted publickey"); at != std::string::npos;
         at = log.find("Accepted publickey", at + 1))
        ++logins;
    EXPECT_EQ(logins, 1U) << log;
}

TEST_F(SshTransportTest, WithoutAConnectionNothingIsKnown) {
    stop_sshd();
    const auto result = transport_->run({"exit 0", {}, {}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    start_sshd();
    EXPECT_TRUE(transport_->run({":", {}, {}}).ok()) << "it comes back by itself";
}

TEST_F(SshTransportTest, AConnectionThatBreaksInTheMiddleIsUnknown) {
    std::jthread breaker([&] {
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(file("begun")); }));
        stop_sshd();
    });
    const auto result = transport_->run({": >\"$1\"; sleep 20", {file("begun")}, {}});
    breaker.join();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    start_sshd();
}

TEST_F(SshTransportTest, ABatchJobOutlivesTheConnectionThatSubmittedIt) {
    Facility facility;
    facility.batch = {"local", 1};
    facility.work_dir = file("work");
    std::filesystem::create_directory(facility.work_dir);
    ScriptSite site(facility, transport_, "");
    const BatchJobRef job{"atoll-a-1", file("work") + "/tasks/a/1"};
    const std::string script = "echo run >>" + file("runs") + "\nwhile [ ! -e " + file("go") +
                               " ]; do sleep 0.02; done\n: >" + file("ended") + "\n";
    ASSERT_TRUE(site.submit_script(job, script).ok());
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file("runs")); }));
    stop_sshd();
    start_sshd();
    ASSERT_TRUE(site.submit_script(job, script).ok());
    write("go", "");
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(file("ended")); }));
    EXPECT_EQ(read_file(file("runs")).value(), "run\n");
    EXPECT_TRUE(site.cancel(job).ok());
}

}  // namespace
}  // namespace atl::dispatch
