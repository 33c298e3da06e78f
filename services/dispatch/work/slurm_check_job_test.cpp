#include <sys/wait.h>

#include <csignal>

#include "services/dispatch/testing/slurm_job_fixture.h"
#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"

namespace atl::dispatch {
namespace {

// The program `atoll`, which reaches dispatch through a gateway.
class SlurmCheckJobTest : public SlurmJobTest {
  protected:
    void SetUp() override {
        SlurmJobTest::SetUp();
        if (IsSkipped()) return;
        ASSERT_TRUE(write_file_atomic(fake("atoll-trainer"), "#!/bin/sh\nexec sleep 600\n", 0755).ok());
        ASSERT_TRUE(write_file_atomic(token_file(), gateway_.token(auth::Role::kAdmin), 0600).ok());
    }
    std::filesystem::path token_file() const { return directory_.path() / "token"; }
    http::Response pass_on(const http::Request& request) {
        const auto answer =
            client().call(request.method, request.path.substr(std::string("/dispatch").size()), request.body);
        if (!answer.ok()) return http::Response::problem(answer.error());
        return {.status = answer->status, .body = answer->body, .headers = {}};
    }
    // Starts a check with a job, interrupts it when its job is in that state, and waits until it has ended: its status.
    int interrupt_when(const std::string& state, int signal) {
        const auto check = start_daemon({ATOLL_PROGRAM, "--gateway", gateway_.url(), "--token-file", token_file(),
                                         "facility", "check", "leonardo", "--job"},
                                        {.log = directory_.path() / "check.log", .environment = {}, .directory = {}});
        EXPECT_TRUE(check.ok());
        EXPECT_TRUE(eventually([&] { return jobs() == state + "\n"; })) << said() << jobs();
        ::kill(*check, signal);
        int status = 0;
        ::waitpid(*check, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    std::string said() const { return read_file(directory_.path() / "check.log").value(); }
    std::string jobs() const { return cluster_->run({"squeue", "-h", "-t", "pending,running,completing", "-o", "%T"}); }

    http::TestServer gateway_{[this](http::Server& server) {
        const auto add = [&](http::Method method, const std::string& path) {
            server.route(method, "/dispatch/v1/facilities/:name" + path, http::Access::roles({auth::Role::kAdmin}),
                         [this](const http::Request& request) { return pass_on(request); });
        };
        add(http::Method::kGet, "");
        add(http::Method::kPost, "/check");
        for (const auto method : {http::Method::kPut, http::Method::kGet, http::Method::kDelete})
            add(method, "/check-jobs/:id");
    }};
};

TEST_F(SlurmCheckJobTest, InterruptedACheckTakesItsJobOutOfTheQueueAndEndsIt) {
    EXPECT_EQ(interrupt_when("RUNNING", SIGINT), 128 + SIGINT) << said();
    EXPECT_NE(said().find("is cancelled"), std::string::npos) << said();
    EXPECT_EQ(jobs(), "");
    const std::string nodes = cluster_->name() + "-n[1-2]";
    cluster_->run({"scontrol", "update", "nodename=" + nodes, "state=drain", "reason=test"});
    EXPECT_EQ(interrupt_when("PENDING", SIGHUP), 128 + SIGHUP) << "its terminal is closed: " << said();
    EXPECT_EQ(jobs(), "");
    EXPECT_EQ(cluster_->run({"squeue", "-h", "-t", "all", "-o", "%T"}), "CANCELLED\nCANCELLED\n");
    for (const auto& left : std::filesystem::directory_iterator(std::filesystem::path(cluster_->work_dir()) / "tasks"))
        ADD_FAILURE() << left.path() << " is left";
}

}  // namespace
}  // namespace atl::dispatch
