#include "tests/slurm/slurm_cluster.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "services/dispatch/sites/job_script.h"
#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

// Sites as dispatch works with them, on a real Slurm cluster over a real ssh.
class SlurmClusterTest : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = SlurmCluster::why_not(); !why.empty()) GTEST_SKIP() << why;
        cluster_ = std::make_unique<SlurmCluster>(std::vector<std::string>{"--nodes", "1", "--preempt"});
        facility_.name = "cluster";
        facility_.transport = {"ssh", cluster_->name(), cluster_->ssh_config()};
        facility_.batch = {"slurm",
                           1,
                           {{"main", {}},
                            {"later", {.extra = {"--begin=now+1hour"}}},
                            {"whole", {.extra = {"--exclusive"}}},
                            {"urgent", {.partition = "urgent", .extra = {"--exclusive"}}},
                            {"none", {.partition = "none"}}},
                           "main"};
        facility_.work_dir = cluster_->work_dir();
        transport_ = make_ssh_transport(facility_.transport, control_.path());
        ASSERT_TRUE(transport_->run({"mkdir \"$1\"", {facility_.work_dir}, {}}).ok());
    }
    void TearDown() override {
        if (cluster_ == nullptr) return;
        (void)run_command({"ssh", "-F", cluster_->ssh_config(), "-o", "ControlPath=" + control_.path().string() + "/%C",
                           "-O", "exit", cluster_->name()});
    }

    ScriptSite site() const { return ScriptSite(facility_, transport_, ""); }
    BatchJob job(const std::string& name, const std::string& command, const std::string& queue = "") const {
        return {.ref = {"atoll-" + name + "-1", site().task_directory(name, 1)},
                .commands = {{"sh", "-c", command}},
                .resources = {.queue = queue}};
    }
    Result<std::string> submit(const BatchJob& one) const { return site().submit(one); }
    BatchAnswer answer(const BatchJob& one) const {
        const auto answers = site().ask_batch({one.ref});
        EXPECT_TRUE(answers.ok()) << answers.error().message;
        return answers.ok() ? answers->at(0) : BatchAnswer();
    }
    static bool eventually(const std::function<bool()>& condition,
                           std::chrono::seconds time_max = std::chrono::seconds(60)) {
        const auto deadline = std::chrono::steady_clock::now() + time_max;
        while (std::chrono::steady_clock::now() < deadline) {
            if (condition()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        return false;
    }
    std::optional<std::int64_t> exit_code(const BatchJob& one) const {
        const auto looks = site().look({{one.ref.directory, 0}});
        return looks.ok() ? looks->at(0).exit_code : std::nullopt;
    }

    TemporaryDirectory control_;
    std::unique_ptr<SlurmCluster> cluster_;
    Facility facility_;
    std::shared_ptr<Transport> transport_;
};

TEST_F(SlurmClusterTest, AJobIsSubmittedOnceAndItsEndIsTold) {
    const BatchJob one = job("a", "echo '{}'; exit 3");
    const auto id = submit(one);
    ASSERT_TRUE(id.ok()) << id.error().message;
    EXPECT_EQ(submit(one).value(), *id);
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kEnded; }));
    EXPECT_EQ(answer(one).end, BatchEnd::kFailed);
    EXPECT_EQ(exit_code(one), 3);
    // Its answer got lost, and what it had noted with it.
    std::filesystem::remove(std::filesystem::path(one.ref.directory) / "jobid");
    EXPECT_EQ(submit(one).value(), *id) << "found by its name";
    EXPECT_EQ(cluster_->run({"squeue", "-h", "-t", "all", "-o", "%j"}), one.ref.name + "\n");
}

TEST_F(SlurmClusterTest, AJobThatWaitsSaysWhy) {
    const BatchJob one = job("a", "true", "later");
    ASSERT_TRUE(submit(one).ok());
    EXPECT_EQ(answer(one).state, BatchState::kQueued);
    EXPECT_EQ(answer(one).reason, "BeginTime");
    ASSERT_TRUE(site().cancel(one.ref).ok());
    EXPECT_EQ(answer(one).end, BatchEnd::kCancelled);
    EXPECT_EQ(submit(one).error().code, ErrorCode::kConflict);
}

TEST_F(SlurmClusterTest, ACancelledJobIsGoneAndALateSubmissionStartsNothing) {
    const BatchJob one = job("a", "sleep 600");
    ASSERT_TRUE(submit(one).ok());
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kRunning; }));
    ASSERT_TRUE(site().cancel(one.ref).ok());
    EXPECT_EQ(answer(one).end, BatchEnd::kCancelled);
    const BatchJob late = job("late", "touch ran");
    ASSERT_TRUE(site().cancel(late.ref).ok());
    std::filesystem::remove(std::filesystem::path(late.ref.directory) / "cancelled");  // as if it had passed by then
    ASSERT_TRUE(submit(late).ok());
    EXPECT_TRUE(eventually([&] { return answer(late).state == BatchState::kEnded; }));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(late.ref.directory) / "ran"));
}

TEST_F(SlurmClusterTest, APreemptedJobIsToldFromAFailedOne) {
    const BatchJob one = job("a", "sleep 600", "whole");
    ASSERT_TRUE(submit(one).ok());
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kRunning; }));
    ASSERT_TRUE(submit(job("urgent", "true", "urgent")).ok());
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kEnded; }));
    EXPECT_EQ(answer(one).end, BatchEnd::kPreempted) << answer(one).reason;
}

TEST_F(SlurmClusterTest, AControllerThatIsAwayIsNotKnown) {
    const BatchJob one = job("a", "true");
    const auto check = [&] {
        const auto checks = site().check("http://127.0.0.1:9");
        EXPECT_TRUE(checks.ok()) << checks.error().message;
        for (const SiteCheck& row : checks.ok() ? *checks : std::vector<SiteCheck>())
            if (row.name == "slurm") return row;
        return SiteCheck();
    };
    EXPECT_TRUE(check().ok) << check().detail;
    cluster_->kill("slurmctld");
    EXPECT_FALSE(check().ok) << check().detail;
    EXPECT_EQ(submit(one).error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(site().ask_batch({one.ref}).error().code, ErrorCode::kUnavailable);
    cluster_->start();
    EXPECT_TRUE(eventually([&] { return submit(one).ok(); }));
}

TEST_F(SlurmClusterTest, SrunAndMpirunStartTheRanksOfOneNode) {
    const auto said = [&](const std::string& name, const std::string& launcher, const std::string& command) {
        BatchJob one = job(name, command);
        one.resources.tasks_per_node = 2;
        one.resources.cores_per_task = 2;
        one.launcher = launcher;
        EXPECT_TRUE(submit(one).ok());
        EXPECT_TRUE(eventually([&] { return exit_code(one).has_value(); }));
        return read_file(one.ref.directory + "/stdout.jsonl").value() +
               read_file(one.ref.directory + "/stderr.log").value();
    };
    EXPECT_EQ(said("srun", "", "echo \"$SLURM_NTASKS ranks of $SLURM_CPUS_PER_TASK\""), "2 ranks of 2\n2 ranks of 2\n");
    EXPECT_EQ(said("mpirun", "mpirun", "echo \"$OMPI_COMM_WORLD_SIZE ranks\""), "2 ranks\n2 ranks\n");
}

TEST_F(SlurmClusterTest, ANodeThatFailsIsToldFromAFailedJob) {
    const BatchJob one = job("a", "sleep 600");
    ASSERT_TRUE(submit(one).ok());
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kRunning; }));
    cluster_->run({"scontrol", "update", "nodename=" + cluster_->name() + "-n1", "state=down", "reason=test"});
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kEnded; }));
    EXPECT_EQ(answer(one).end, BatchEnd::kNodeFailure) << answer(one).reason;
}

// A minute is the shortest time, and Slurm looks at it twice in one: `./dev test --slurm`.
TEST_F(SlurmClusterTest, DISABLED_AJobOutOfTimeIsToldFromAFailedOne) {
    BatchJob one = job("a", "trap '' USR1; sleep 600 & wait");
    one.resources.time_s = 60;
    ASSERT_TRUE(submit(one).ok());
    EXPECT_TRUE(eventually([&] { return answer(one).state == BatchState::kRunning; }));
    EXPECT_TRUE(eventually([&] { return answer(one).state != BatchState::kRunning; }, std::chrono::minutes(4)));
    EXPECT_EQ(answer(one).end, BatchEnd::kTimeLimit) << answer(one).reason;
}

TEST_F(SlurmClusterTest, AJobThatCanNeverRunIsRefusedWithTheReason) {
    const auto refused = submit(job("a", "true", "none"));
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("partition"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace atl::dispatch
