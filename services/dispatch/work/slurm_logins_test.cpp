#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "services/dispatch/testing/slurm_job_fixture.h"
#include "shared/base/file.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using json::Json;

// What a site's sshd sees of dispatch.
class SlurmLoginTest : public SlurmLongJobTest {
  protected:
    // Lines of the login node's log that hold the text.
    std::int64_t said(const std::string& text) const {
        std::istringstream log(read_file(cluster_->path("log/sshd.1.log")).value());
        std::int64_t count = 0;
        for (std::string line; std::getline(log, line);)
            if (line.find(text) != std::string::npos) ++count;
        return count;
    }
    std::int64_t logins() const { return said("Accepted publickey"); }
    std::int64_t tries() const { return said("Connection from"); }
    std::int64_t sessions() const { return said("Starting session"); }

    // A facility's own key, which sshd knows only by a certificate; the user's key stands for it no more.
    std::filesystem::path key() const { return cluster_->path("ssh/owner"); }
    void sign(const std::string& until) const {
        const auto made = run_command({"ssh-keygen", "-q", "-s", cluster_->path("ssh/authority"), "-I", "owner", "-n",
                                       "atoll-" + cluster_->name(), "-V", "-5m:" + until, key().string() + ".pub"});
        ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->err;
    }
    void log_in_by_certificate() {
        ASSERT_EQ(run_command({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key()})->exit_code, 0);
        ASSERT_NO_FATAL_FAILURE(sign("+1h"));
        std::string config = read_file(cluster_->ssh_config()).value();
        const std::string user_key = cluster_->path("ssh/user_key");
        config.replace(config.find(user_key), user_key.size(), key());
        const auto file = cluster_->path("ssh/config_owner");
        ASSERT_TRUE(write_file_atomic(file, config).ok());
        const Json patch = {
            {"transport", {{"kind", "ssh"}, {"host", cluster_->name()}, {"config_file", file.string()}}}};
        const auto set =
            client().call(http::Method::kPatch, "/v1/facilities/leonardo", patch.dump(), {{{"If-Match", "*"}}, {}});
        ASSERT_EQ(set->status, 200) << set->body;
    }
    void break_connections() const {
        const auto found =
            run_command({"pgrep", "-P", std::string(trim(read_file(cluster_->path("run/sshd.1.pid")).value()))});
        std::istringstream pids(found->out);
        for (pid_t pid = 0; pids >> pid;) ::kill(pid, SIGKILL);
    }
    std::string waits_for(const std::string& job) {
        const Json waiting = training(job).value("waiting", Json());
        return waiting.is_object() ? waiting.at("reason").get<std::string>() : "";
    }
};

// ATOLL_QUEUED_S says for how long, which `./dev test --slurm` sets; with dispatch's own intervals.
TEST_F(SlurmLoginTest, ASiteWhoseQueueIsFullIsLeftInPeace) {
    const char* given = std::getenv("ATOLL_QUEUED_S");
    if (given == nullptr) GTEST_SKIP() << "takes ten minutes: ./dev test --slurm";
    const int queued_s = std::atoi(given);
    constexpr int kTasks = 20;
    cluster_->run({"scontrol", "update", "nodename=" + cluster_->name() + "-n[1-2]", "state=drain", "reason=test"});
    stop_service();
    is_hurried_ = false;
    start_service();
    std::vector<std::string> jobs;
    for (int i = 0; i < kTasks; ++i) {
        Json request = job_on_one_node(3, Json::object());
        request["name"] = "job-" + std::to_string(i);
        jobs.push_back(submit(request));
    }
    ASSERT_TRUE(within_minutes([&] {
        return std::all_of(jobs.begin(), jobs.end(),
                           [&](const auto& job) { return training(job).value("step", "") == "queued"; });
    })) << cluster_->run({"squeue"});
    const std::int64_t logins_before = logins();
    const std::int64_t sessions_before = sessions();
    EXPECT_GE(sessions_before, 1);
    std::this_thread::sleep_for(std::chrono::seconds(queued_s));
    const std::string queue = cluster_->run({"squeue", "-h", "-t", "pending"});
    EXPECT_EQ(std::count(queue.begin(), queue.end(), '\n'), kTasks) << queue;
    std::cout << "in " << queued_s << " s: " << logins() - logins_before << " logins, " << sessions() - sessions_before
              << " sessions\n";
    EXPECT_LE(logins() - logins_before, 2);
    // A look at all attempts once a minute, a question whether Slurm answers every fifteen seconds.
    EXPECT_LE(sessions() - sessions_before, queued_s / 15 + 30);
}

TEST_F(SlurmLoginTest, ACertificateThatEndsInTheMiddleIsWaitedFor) {
    ASSERT_NO_FATAL_FAILURE(log_in_by_certificate());
    const std::string job = submit(job_on_one_node(300, Json::object()));
    ASSERT_TRUE(within_minutes([&] { return !steps(job, 1).empty(); })) << errors(job);
    sign("-1m");
    const std::int64_t tries_before = tries();
    const std::int64_t logins_before = logins();
    break_connections();
    const std::string certificate = key().string() + "-cert.pub: valid from ";
    const auto says_so = [&] { return waits_for(job).find(certificate) != std::string::npos; };
    ASSERT_TRUE(within_minutes(says_so)) << waits_for(job) << errors(job);
    // The batch job knows nothing of it and comes to its end.
    EXPECT_TRUE(within_minutes([&] { return cluster_->run({"squeue", "-h", "-t", "pending,running"}).empty(); }));
    EXPECT_EQ(state_of(job), "running");
    EXPECT_TRUE(says_so()) << waits_for(job);
    EXPECT_LE(tries() - tries_before, 2);
    EXPECT_EQ(logins(), logins_before);
    sign("+1h");
    ASSERT_TRUE(completes(job)) << errors(job);
    EXPECT_EQ(training(job).at("attempt"), 1);
    EXPECT_LE(tries() - tries_before, 3);
    EXPECT_EQ(logins() - logins_before, 1);
}

}  // namespace
}  // namespace atl::dispatch
