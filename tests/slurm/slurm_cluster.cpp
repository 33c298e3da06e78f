#include "tests/slurm/slurm_cluster.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "shared/base/check.h"
#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/base/subprocess.h"
#include "tests/integration/test_stack.h"

namespace atl {
namespace {

constexpr const char* kScript = ATOLL_CLUSTER_SCRIPT;
constexpr int kPorts = 14;  // cluster.sh says which of them it uses

bool is_free(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// The first of so many, below those that the kernel gives to clients.
std::uint16_t free_ports() {
    constexpr int kLowest = 12'000;
    constexpr int kHighest = 32'000;
    for (int tries = 0; tries < 1000; ++tries) {
        const int first = kLowest + free_port() % ((kHighest - kLowest) / kPorts) * kPorts;
        int count = 0;
        while (count < kPorts && is_free(static_cast<std::uint16_t>(first + count))) ++count;
        if (count == kPorts) return static_cast<std::uint16_t>(first);
    }
    check(false, "no " + std::to_string(kPorts) + " free TCP ports in a row");
    return 0;
}

}  // namespace

std::string SlurmCluster::why_not() {
    if (::geteuid() != 0) return "only root can start a Slurm cluster";
    for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/munged", "/usr/sbin/sshd"})
        if (!std::filesystem::exists(program))
            return std::string("no ") + program + ": install slurm-wlm and openssh-server";
    if (run_command({"unshare", "--mount", "true"})->exit_code != 0) return "no mount namespace of one's own here";
    return "";
}

std::string SlurmCluster::why_not_memory() {
    if (::access("/sys/fs/cgroup/memory/memory.limit_in_bytes", W_OK) == 0) return why_not();
    return "no writable memory controller of cgroup v1";
}

SlurmCluster::SlurmCluster(const std::vector<std::string>& options)
    : name_("t" + random_hex(4)), root_("/var/tmp/atoll-clusters/" + name_) {
    up_ = {kScript, "up", name_, "--port", std::to_string(free_ports())};
    up_.insert(up_.end(), options.begin(), options.end());
    start();
}

SlurmCluster::~SlurmCluster() {
    const auto ended = run_command({kScript, "purge", name_});
    EXPECT_TRUE(ended.ok() && ended->exit_code == 0) << (ended.ok() ? ended->err : ended.error().message);
}

std::string SlurmCluster::run(const std::vector<std::string>& command) const {
    std::vector<std::string> argv = {"env", "SLURM_CONF=" + path("etc/slurm.conf").string()};
    argv.insert(argv.end(), command.begin(), command.end());
    // While the controller starts again they have no answer.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (;;) {
        const auto result = run_command(argv);
        if (result.ok() && result->exit_code == 0) return result->out;
        if (std::chrono::steady_clock::now() > deadline) {
            ADD_FAILURE() << command.front() << ": " << (result.ok() ? result->err : result.error().message);
            return "";
        }
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

void SlurmCluster::start() const {
    CommandOptions options;
    options.timeout = std::chrono::minutes(2);
    const auto started = run_command(up_, options);
    ASSERT_TRUE(started.ok()) << started.error().message;
    ASSERT_EQ(started->exit_code, 0) << started->err;
}

void SlurmCluster::kill(const std::string& daemon) const {
    const auto pid = read_file(path("run/" + daemon + ".pid"));
    ASSERT_TRUE(pid.ok() && std::atoi(pid->c_str()) > 1) << daemon;
    EXPECT_EQ(::kill(std::atoi(pid->c_str()), SIGKILL), 0) << daemon;
}

}  // namespace atl
