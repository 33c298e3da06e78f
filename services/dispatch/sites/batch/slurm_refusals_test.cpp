#include <gtest/gtest.h>

#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/testing/fake_slurm_site.h"

namespace atl::dispatch {
namespace {

class SlurmRefusalsTest : public testing::Test {
  protected:
    ErrorCode submit_where_sbatch_says(const std::string& said) {
        slurm_.put("bin/sbatch", "#!/bin/sh\ncat <<'TEXT' >&2\nsbatch: error: " + said + "\nTEXT\nexit 1\n");
        ScriptSite site(slurm_.facility, make_local_transport(), "");
        const auto id = site.submit_script({"atoll-t-1", site.task_directory("t", 1)}, "exit 0\n");
        if (id.ok()) return ErrorCode::kConflict;
        EXPECT_NE(describe(id.error()).find(said), std::string::npos) << describe(id.error());
        return id.error().code;
    }

    FakeSlurmSite slurm_;
};

// slurm_errno.c of 22.05 to 24.11: what the site, its administrators or its network may mend without us.
TEST_F(SlurmRefusalsTest, WhatMayPassIsWaitedFor) {
    for (const char* said : {
             "Batch job submission failed: Required partition not available (inactive or drain)",
             "Batch job submission failed: Requested partition configuration not available now",
             "Batch job submission failed: Requested reservation not usable now",
             "Batch job submission failed: Required node not available (down, drained or reserved)",
             "Batch job submission failed: Requested nodes are busy",
             "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or "
             "time limits)",
             "AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy",
             "Batch job submission failed: Resource temporarily unavailable",
             "Batch job submission failed: Unable to contact slurm controller (connect failure)",
             "Batch job submission failed: Socket timed out on send/recv operation",
             "Batch job submission failed: Slurm backup controller in standby mode",
             "Batch job submission failed: Invalid authentication credential",
             "Batch job submission failed: Protocol authentication error",
             "Batch job submission failed: Access/permission denied",
             "Batch job submission failed: Error writing batch job script to file: disk quota exceeded",
             "Batch job submission failed: Unspecified error",
             "A word of a site's own plugin: the machine is being moved",
         })
        EXPECT_EQ(submit_where_sbatch_says(said), ErrorCode::kUnavailable) << said;
}

TEST_F(SlurmRefusalsTest, ALimitThatSbatchItselfHoldsIsExplained) {
    const auto said = [&](const std::string& limit) {
        slurm_.put("bin/sbatch",
                   "#!/bin/sh\necho 'sbatch: error: " + limit +
                       "\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy' "
                       ">&2\nexit 1\n");
        ScriptSite site(slurm_.facility, make_local_transport(), "");
        const auto id = site.submit({.ref = {"atoll-t-1", site.task_directory("t", 1)}, .commands = {{"true"}}});
        EXPECT_EQ(id.error().code, ErrorCode::kUnavailable);
        return id.error().message;
    };
    const std::string wall = said("QOSMaxWallDurationPerJobLimit");
    EXPECT_TRUE(
        wall.ends_with("(the job asks for more than its account or QOS gives one job: cancel the job, and ask "
                       "for less in its resources)"))
        << wall;
    EXPECT_NE(said("AssocMaxSubmitJobLimit").find("it starts once other jobs have ended"), std::string::npos);
    EXPECT_TRUE(said("the QOS is away").ends_with("accounting/QOS policy"));
}

TEST_F(SlurmRefusalsTest, AnSbatchWithoutAnIdIsToldAsSuch) {
    for (const std::string said : {"", "Submitted"}) {
        slurm_.put("bin/sbatch", "#!/bin/sh\necho " + said + "\n");
        ScriptSite site(slurm_.facility, make_local_transport(), "");
        const auto id = site.submit_script({"atoll-t-1", site.task_directory("t", 1)}, "exit 0\n");
        ASSERT_FALSE(id.ok());
        EXPECT_EQ(id.error().code, ErrorCode::kUnavailable);
        EXPECT_EQ(id.error().message,
                  "the batch system: sbatch printed no job id" + (said.empty() ? "" : ", but: " + said));
    }
}

TEST_F(SlurmRefusalsTest, WhatIsTheFileSystemsIsNotCalledTheBatchSystems) {
    ScriptSite site(slurm_.facility, make_local_transport(), "");
    const auto said = [&](const std::string& program) {
        slurm_.put("bin/mkdir", "#!/bin/sh\necho " + program + " >&2\nexit 1\n");
        const auto id = site.submit_script({"atoll-t-1", site.task_directory("t", 1)}, "exit 0\n");
        EXPECT_FALSE(id.ok());
        return id.ok() ? "" : id.error().message;
    };
    const std::string work = slurm_.facility.work_dir;
    EXPECT_TRUE(said("mkdir: Read-only file system").starts_with(work + ": its file system is mounted read-only"))
        << said("mkdir: Read-only file system");
    EXPECT_TRUE(said("mkdir: No space left on device").starts_with("no space or quota is left in " + work));
    EXPECT_TRUE(said("mkdir: no").starts_with("the batch system: ")) << said("mkdir: no");
}

// What the facility's record, its template or the site must be changed for, as when a partition is renamed.
TEST_F(SlurmRefusalsTest, AQueueThatIsNotThereIsNoFaultOfTheJob) {
    for (const char* said : {
             "invalid partition specified: mian\nsbatch: error: Batch job submission failed: Invalid partition name "
             "specified",
             "Batch job submission failed: Invalid account or account/partition combination specified",
             "Batch job submission failed: Invalid qos specification",
             "Batch job submission failed: Invalid feature specification",
             "Batch job submission failed: Invalid wckey specification",
             "Batch job submission failed: Invalid license specification",
             "Batch job submission failed: Invalid generic resource (gres) specification",
             "Batch job submission failed: Invalid Trackable RESource (TRES) specification",
             "Batch job submission failed: User's group not permitted to use this partition",
             "Batch job submission failed: Requested reservation is invalid",
             "Batch job submission failed: Access denied to requested reservation",
             "Invalid --time specification",
             // Its limits are lower than when the job was submitted.
             "Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
             "Batch job submission failed: Node count specification invalid",
         })
        EXPECT_EQ(submit_where_sbatch_says(said), ErrorCode::kNotFound) << said;
    EXPECT_EQ(submit_where_sbatch_says("x\nsbatch: unrecognized option '--gpu-per-node=4'"), ErrorCode::kNotFound);
}

// What the job must be changed for.
TEST_F(SlurmRefusalsTest, WhatCanNeverRunIsRefused) {
    for (const char* said : {
             "Batch job submission failed: Requested node configuration is not available",
             "Batch job submission failed: CPU count per node can not be satisfied",
             "Batch job submission failed: Memory specification can not be satisfied",
             "Batch job submission failed: More processors requested than permitted",
         })
        EXPECT_EQ(submit_where_sbatch_says(said), ErrorCode::kInvalidArgument) << said;
}

TEST_F(SlurmRefusalsTest, WhichQueueIsGoneAndWhatChangesItIsSaid) {
    ScriptSite site(slurm_.facility, make_local_transport(), "");
    const auto said = [&](const std::string& sbatch) {
        slurm_.put("bin/sbatch", "#!/bin/sh\necho 'sbatch: error: " + sbatch + "' >&2\nexit 1\n");
        BatchJob job;
        job.ref = {"atoll-t-1", site.task_directory("t", 1)};
        const auto id = site.submit(job);
        EXPECT_TRUE(!id.ok() && is_absent(id.error()));
        return id.ok() ? "" : id.error().message;
    };
    const std::string gone = said("Batch job submission failed: Invalid partition name specified");
    EXPECT_TRUE(gone.starts_with("the partition of queue \"main\" does not exist at leonardo (")) << gone;
    EXPECT_NE(gone.find("change it with `atoll facility set leonardo --set batch.queues.main.partition=PARTITION`"),
              std::string::npos)
        << gone;
    Facility named = slurm_.facility;
    named.batch.queues["main"].partition = "boost";
    ScriptSite other_site(named, make_local_transport(), "");
    BatchJob second;
    second.ref = {"atoll-t-2", other_site.task_directory("t", 2)};
    const auto of_boost = other_site.submit(second);
    ASSERT_FALSE(of_boost.ok());
    EXPECT_TRUE(of_boost.error().message.starts_with("the partition \"boost\" of queue \"main\" does not exist at"))
        << of_boost.error().message;
    const std::string lower = said("Batch job submission failed: Requested time limit is invalid");
    EXPECT_TRUE(lower.starts_with("Slurm at leonardo gives less in the queue \"main\" by now than this job asks for ("))
        << lower;
    const std::string other = said("Batch job submission failed: Invalid qos specification");
    EXPECT_TRUE(other.starts_with("Slurm at leonardo rejects the settings of queue \"main\" (")) << other;
    EXPECT_NE(other.find("--set batch.queues.main.MEMBER=VALUE`"), std::string::npos) << other;
    EXPECT_NE(other.find("Invalid qos specification"), std::string::npos) << other;
}

TEST_F(SlurmRefusalsTest, WhatTriesTheSameQueueIsSaid) {
    slurm_.put("bin/sbatch",
               "#!/bin/sh\necho 'sbatch: error: Memory specification can not be satisfied' >&2\nexit 1\n");
    ScriptSite site(slurm_.facility, make_local_transport(), "");
    BatchJob job;
    job.ref = {"atoll-t-1", site.task_directory("t", 1)};
    job.resources.queue = "main";
    const auto id = site.submit(job);
    ASSERT_FALSE(id.ok());
    EXPECT_NE(
        id.error().message.find("facility check " + slurm_.facility.name + " --job --queue 'main'` tries the same"),
        std::string::npos)
        << id.error().message;
}

// sbatch may have put a job into the queue without saying so; Slurm forgets a job minutes after its end.
TEST_F(SlurmRefusalsTest, AJobThatHasBegunIsNotSubmittedAgain) {
    const std::string asked = slurm_.path("asked");
    slurm_.put("bin/sbatch", "#!/bin/sh\necho x >>" + asked + "\nfor file; do :; done\nsh \"$file\"\nexit 1\n");
    ScriptSite site(slurm_.facility, make_local_transport(), "");
    for (const std::string start : {"echo 17 >started", ":"}) {
        const std::string task = start == ":" ? "b" : "a";
        const BatchJobRef job = {"atoll-" + task + "-1", site.task_directory(task, 1)};
        const std::string script = "mkdir claim || exit\n" + start + "\n";
        EXPECT_FALSE(site.submit_script(job, script).ok()) << "its answer was lost";
        const auto id = site.submit_script(job, script);
        ASSERT_TRUE(id.ok()) << describe(id.error());
        EXPECT_EQ(*id, start == ":" ? "unknown" : "17");
    }
    EXPECT_EQ(read_file(asked).value(), "x\nx\n") << "once each";
}

TEST_F(SlurmRefusalsTest, AProgramThatIgnoresItsEndIsKilled) {
    slurm_.put("bin/squeue", "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n");
    CommandOptions patience;
    patience.timeout = std::chrono::seconds(8);
    const auto ended = run_command(
        {"sh", "-c", "PATH=$1:$PATH\n" + make_slurm_batch()->functions() + "\nwithin 1 squeue; echo \"status $?\"",
         "sh", slurm_.path("bin")},
        patience);
    ASSERT_TRUE(ended.ok()) << describe(ended.error());
    EXPECT_EQ(ended->out, "status 137\n") << ended->err;
    EXPECT_NE(ended->err.find("squeue gave no answer within 1 s"), std::string::npos) << ended->err;
}

// Sites lock out who asks every second.
TEST_F(SlurmRefusalsTest, AJobThatItsNodeDoesNotEndIsAskedForLater) {
    const std::string asked = slurm_.path("asked");
    slurm_.put("bin/squeue", "#!/bin/sh\necho x >>" + asked + "\necho JOBID\necho 17\n");
    ScriptSite site(slurm_.facility, make_local_transport(), "");
    const Status ended = site.cancel({"atoll-t-1", site.task_directory("t", 1)});
    EXPECT_EQ(ended.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(describe(ended.error()).find("Slurm still ends the job: 17"), std::string::npos)
        << describe(ended.error());
    EXPECT_LE(read_file(asked).value().size(), 2U * 4);
}

}  // namespace
}  // namespace atl::dispatch
