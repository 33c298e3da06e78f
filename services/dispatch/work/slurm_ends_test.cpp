#include "services/dispatch/testing/slurm_job_fixture.h"
#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

using json::Json;

// Takes 400 MiB and holds them.
constexpr const char* kEat = "exec perl -e '$text = \"a\" x (400 << 20); sleep 600'\n";

// Why an attempt has ended, as Slurm tells it of a trainer that a script plays.
class SlurmEndTest : public SlurmLongJobTest {
  protected:
    void play_trainer(const std::string& shell) const {
        ASSERT_TRUE(
            write_file_atomic(fake("atoll-trainer"), "#!/bin/sh\n[ \"$1\" = train ] || exit 1\n" + shell, 0755).ok());
    }
    std::string submit_with(const Json& resources) {
        Json request = job_on_one_node(10, Json::object());
        request["participants"][0]["resources"] = resources;
        return submit(request);
    }
    // What is said of the first attempt when it has ended.
    std::string first_end(const std::string& job) {
        EXPECT_TRUE(within_minutes([&] { return !why_ended(job, 1).empty(); })) << errors(job);
        return why_ended(job, 1);
    }
    void cancel(const std::string& job) {
        if (state_of(job) != "running") return;
        EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
    }
};

TEST_F(SlurmEndTest, ATimeLimitIsCalledSoWhenAnAttemptReachesIt) {
    play_trainer("trap '' USR1 TERM INT\nsleep 600\n");
    const std::string job = submit_with({{"time", "0:01:00"}});
    const std::string why = first_end(job);
    EXPECT_NE(why.find("its batch job reached its time limit (TIMEOUT: TimeLimit)"), std::string::npos) << why;
    cancel(job);
}

TEST_F(SlurmEndTest, AnExitCodeComesWithTheEndOfTheLog) {
    play_trainer("echo 'the device fell off the bus' >&2\nexit 1\n");
    const std::string job = submit_with({{"time", "0:05:00"}});
    const std::string why = first_end(job);
    EXPECT_NE(why.find("exit code 1: the device fell off the bus"), std::string::npos) << why;
    cancel(job);
}

class SlurmMemoryTest : public SlurmEndTest {
  protected:
    void SetUp() override {
        if (const std::string why = SlurmCluster::why_not_memory(); !why.empty()) GTEST_SKIP() << why;
        SlurmEndTest::SetUp();
    }
    std::vector<std::string> cluster_options() const override { return {"--nodes", "1", "--memory"}; }
};

TEST_F(SlurmMemoryTest, AJobThatTakesMoreThanItAskedForIsSaidToHaveRunOutOfMemory) {
    play_trainer(kEat);
    for (const int ranks : {1, 2}) {  // of ranks srun tells, of one process Slurm's state of the job
        const std::string job = submit_with({{"tasks_per_node", ranks}, {"memory", "100MiB"}, {"time", "0:05:00"}});
        const std::string why = first_end(job);
        EXPECT_NE(why.find("its batch job ran out of memory"), std::string::npos) << why;
        EXPECT_NE(why.find("raise `memory` of its resources"), std::string::npos) << why;
        if (ranks == 1) {
            EXPECT_NE(why.find("(OUT_OF_MEMORY: OutOfMemory)"), std::string::npos) << why;
        }
        cancel(job);
    }
}

class SlurmAccountedJobTest : public SlurmEndTest {
  protected:
    std::vector<std::string> cluster_options() const override { return {"--nodes", "1", "--sacct"}; }
};

TEST_F(SlurmAccountedJobTest, WhoCancelledAnAttemptIsSaid) {
    play_trainer("exec sleep 600\n");
    const std::string job = submit_with({{"time", "0:05:00"}});
    ASSERT_TRUE(within_minutes([&] { return is_started(job, 1); })) << errors(job);
    cluster_->run({"scancel", "--name=" + name(job, 1)});
    const std::string why = first_end(job);
    EXPECT_NE(why.find("its batch job was cancelled by root (CANCELLED by root"), std::string::npos) << why;
    cancel(job);
}

}  // namespace
}  // namespace atl::dispatch
