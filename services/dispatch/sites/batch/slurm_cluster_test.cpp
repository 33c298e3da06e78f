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
        cluster_ = std::make_unique<SlurmCluster>(cluster_options());
        facility_.name = "cluster";
        facility_.transport = {TransportKind::kSsh, cluster_->name(), cluster_->ssh_config()};
        facility_.batch = {BatchKind::kSlurm,
                           1,
                           {{"main", {}},
                            {"later", {.extra = {"--begin=now+1hour"}}},
                            {"whole", {.extra = {"--exclusive"}}},
                            {"urgent", {.partition = "urgent", .extra = {"--exclusive"}}},
                            {"none", {.partition = "none"}}},
                           "main"};
        facility_.work_dir = cluster_->work_dir();
        transport_ = make_ssh_transport("cluster", facility_.transport, {.control_directory = control_.path()});
        ASSERT_TRUE(transport_->run({"mkdir \"$1\"", {facility_.work_dir}, {}}).ok());
    }
    virtual std::vector<std::string> cluster_options() const { return {"--nodes", "1", "--preempt"}; }
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

    std::unique_ptr<SlurmCluster> cluster_;
    TemporaryDirectory control_;
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
    ASSERT_TRUE(eventually([&] { return site().cancel(one.ref).ok(); }));
    EXPECT_EQ(answer(one).end, BatchEnd::kCancelled);
    const BatchJob late = job("late", "touch ran");
    ASSERT_TRUE(site().cancel(late.ref).ok());
    std::filesystem::remove(std::filesystem::path(late.ref.directory) / "cancelled");  // as if it had passed by then
    EXPECT_EQ(submit(late).value(), "unknown");
    EXPECT_EQ(answer(late).state, BatchState::kUnknownToQueue);
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

// Slurm's programs try again for long: `./dev test --slurm`.
TEST_F(SlurmClusterTest, DISABLED_AControllerThatIsAwayIsNotKnown) {
    const BatchJob one = job("a", "true");
    const auto check = [&] {
        for (const CheckRow& row : site().check({"http://127.0.0.1:9"}).rows)
            if (row.name == "scheduler") return row;
        return CheckRow();
    };
    EXPECT_EQ(check().state, CheckState::kOk) << check().seen;
    cluster_->kill("slurmctld");
    EXPECT_EQ(check().state, CheckState::kFail) << check().seen;
    EXPECT_NE(check().seen.find("Unable to contact slurm controller"), std::string::npos) << check().seen;
    EXPECT_TRUE(submit(one).error().cause == Cause::kBatchSystem) << describe(submit(one).error());
    EXPECT_TRUE(site().ask_batch({one.ref}).error().cause == Cause::kBatchSystem);
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

TEST_F(SlurmClusterTest, AContinuationTakesWhatIsSavedWhenItStartsOrEndsAtOnceWhereNothingIsLeftToDo) {
    for (const std::string leaves : {"echo saved >out.state/state.safetensors", "true"}) {
        const std::string task = leaves == "true" ? "whole" : "cut";
        const BatchJob first = job(task, "mkdir out.state; while [ ! -e go ]; do sleep 0.1; done; " + leaves);
        const auto id = submit(first);
        ASSERT_TRUE(id.ok()) << id.error().message;
        BatchJob second = job(task, "cat out.state/state.safetensors");
        second.ref = {"atoll-" + task + "-2", site().task_directory(task, 2), *id};
        second.earlier_attempts = {first.ref.directory};
        ASSERT_TRUE(submit(second).ok());
        EXPECT_EQ(answer(second).reason, "Dependency");
        EXPECT_TRUE(write_file_atomic(first.ref.directory + "/go", "").ok());
        EXPECT_TRUE(eventually([&] { return answer(second).state == BatchState::kEnded; }));
        EXPECT_EQ(answer(second).end, BatchEnd::kCompleted);
        const auto said = read_file(second.ref.directory + "/stdout.jsonl");
        EXPECT_EQ(said.ok() ? *said : "nothing", task == "cut" ? "saved\n" : "nothing");
        EXPECT_EQ(std::filesystem::exists(second.ref.directory + "/claim"), task == "cut");
    }
}

TEST_F(SlurmClusterTest, AJobOnANodeWithoutTheWorkDirectoryFailsBeforeItBeginsAnything) {
    const BatchJob one = job("a", "touch ran", "later");
    ASSERT_TRUE(submit(one).ok());
    const std::filesystem::path work = facility_.work_dir;
    std::filesystem::rename(work, work.string() + ".away");
    cluster_->run({"scontrol", "update", "jobname=" + one.ref.name, "starttime=now"});
    EXPECT_TRUE(eventually([&] { return cluster_->run({"squeue", "-h", "-t", "all", "-o", "%T"}) == "FAILED\n"; }))
        << cluster_->run({"squeue", "-h", "-t", "all", "-o", "%T %r"});
    std::filesystem::remove_all(work);  // Slurm may have made it for the log
    std::filesystem::rename(work.string() + ".away", work);
    EXPECT_EQ(answer(one).end, BatchEnd::kFailed) << answer(one).reason;
    const Look look = site().look({{one.ref.directory, 0}}).value().at(0);
    EXPECT_FALSE(look.started);
    EXPECT_EQ(look.exit_code, std::nullopt);
}

TEST_F(SlurmClusterTest, SlurmSaysWhatMachinesTheNodesAre) {
    const std::string image = facility_.work_dir + "/trainer.sif";
    ASSERT_TRUE(write_file_atomic(image,
                                  std::string(32, 'x') + "SIF_MAGIC" + std::string(1, '\0') + "01" + '\0' + "04" +
                                      std::string(1, '\0'),
                                  0644)
                    .ok());
    facility_.image = ImageSpec{image, "", "", "none", {}, {}};
    facility_.batch.queues = {{"urgent", {.partition = "urgent"}}};
    facility_.batch.default_queue = "urgent";
    for (const CheckRow& row : site().check({"http://127.0.0.1:9"}).rows)
        if (row.name == "image") {
            EXPECT_EQ(row.state, CheckState::kFail);
            EXPECT_NE(row.seen.find("aarch64 machines, but the compute nodes are x86_64"), std::string::npos)
                << row.seen;
            return;
        }
    FAIL() << "no row of the image";
}

class SlurmAccountingTest : public SlurmClusterTest {
  protected:
    std::vector<std::string> cluster_options() const override { return {"--nodes", "1", "--sacct"}; }
};

// Slurm forgets ended jobs after MinJobAge, and looks for them once in a minute: `./dev test --slurm`.
TEST_F(SlurmAccountingTest, DISABLED_WhatTheQueueHasForgottenAccountingTells) {
    const BatchJob failed = job("a", "exit 3");
    const BatchJob cancelled = job("b", "sleep 600");
    ASSERT_TRUE(submit(failed).ok());
    ASSERT_TRUE(submit(cancelled).ok());
    EXPECT_TRUE(eventually([&] { return answer(failed).state == BatchState::kEnded; }));
    EXPECT_TRUE(eventually([&] { return answer(cancelled).state == BatchState::kRunning; }));
    cluster_->run({"scancel", "--name=" + cancelled.ref.name});
    EXPECT_TRUE(
        eventually([&] { return cluster_->run({"squeue", "-h", "-t", "all"}).empty(); }, std::chrono::minutes(3)));
    EXPECT_EQ(answer(failed).end, BatchEnd::kFailed) << answer(failed).reason;
    EXPECT_EQ(answer(failed).reason, "FAILED: 3:0");
    EXPECT_EQ(answer(cancelled).end, BatchEnd::kCancelled) << answer(cancelled).reason;
    EXPECT_TRUE(answer(cancelled).reason.starts_with("CANCELLED by root")) << answer(cancelled).reason;
}

TEST_F(SlurmClusterTest, ACheckReadsTheLimitsOfTheQueues) {
    const auto limits = site().check({"http://127.0.0.1:9"}).limits;
    const auto row = [&](const std::string& name) {
        for (const CheckRow& one : site().check({"http://127.0.0.1:9"}).rows)
            if (one.name == name) return one;
        return CheckRow();
    };
    EXPECT_EQ(limits.at("main"), (QueueLimits{1, 3600, 600, 4, 4000, 1})) << row("queue main").seen;
    EXPECT_EQ(row("queue main").state, CheckState::kOk);
    EXPECT_EQ(row("queue none").state, CheckState::kFail);
    EXPECT_EQ(row("queue none").seen, "Slurm has no partition \"none\"; it has main, short, urgent");
    EXPECT_EQ(row("launcher").state, CheckState::kOk) << row("launcher").seen;
    facility_.launcher = "srun --mpi=pmix_v9";
    EXPECT_EQ(row("launcher").state, CheckState::kFail) << row("launcher").seen;
    EXPECT_NE(row("launcher").mend.find("--launcher 'srun --mpi=pmix_v"), std::string::npos) << row("launcher").mend;
}

TEST_F(SlurmClusterTest, ADrainedNodeAndAPartitionThatIsDownFailTheCheck) {
    const auto row = [&] {
        for (const CheckRow& one : site().check({"http://127.0.0.1:9"}).rows)
            if (one.name == "queue main") return one;
        return CheckRow();
    };
    EXPECT_EQ(row().state, CheckState::kOk) << row().seen;
    cluster_->run({"scontrol", "update", "nodename=" + cluster_->name() + "-n1", "state=drain", "reason=test"});
    EXPECT_EQ(row().state, CheckState::kFail) << row().seen;
    EXPECT_NE(row().seen.find("1 of its 1 nodes take no jobs now: 1 drained"), std::string::npos) << row().seen;
    cluster_->run({"scontrol", "update", "nodename=" + cluster_->name() + "-n1", "state=resume"});
    cluster_->run({"scontrol", "update", "partitionname=main", "state=down"});
    EXPECT_NE(row().seen.find("the partition is down"), std::string::npos) << row().seen;
}

TEST_F(SlurmClusterTest, AQueueThatIsGoneIsToldWithTheReason) {
    const auto gone = submit(job("a", "true", "none"));
    ASSERT_FALSE(gone.ok());
    EXPECT_TRUE(is_absent(gone.error())) << gone.error().message;
    EXPECT_NE(gone.error().message.find("of queue \"none\" does not exist at"), std::string::npos)
        << gone.error().message;
}

}  // namespace
}  // namespace atl::dispatch
