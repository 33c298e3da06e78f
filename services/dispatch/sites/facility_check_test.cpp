#include "services/dispatch/domain/facility_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "services/dispatch/domain/check_job.h"
#include "services/dispatch/sites/image_command.h"
#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/testing/fake_slurm_site.h"
#include "services/dispatch/work/check_jobs.h"

namespace atl::dispatch {
namespace {

class FacilityCheckTest : public testing::Test {
  protected:
    ScriptSite site() const { return ScriptSite(fake_.facility, make_local_transport(), ""); }
    std::vector<CheckRow> rows() const { return check().rows; }
    SiteCheck check() const {
        using SystemClock = std::chrono::system_clock;
        return site().check(
            {fake_.store_url, std::chrono::duration<double>(SystemClock::now().time_since_epoch()).count()});
    }
    // What a check's job finds there.
    std::vector<CheckRow> job_rows(const std::string& id) const {
        ScriptSite at = site();
        const std::string task = "check-" + id;
        const auto resources = parse_check_job(json::Json::object(), fake_.facility);
        EXPECT_TRUE(resources.ok()) << describe(resources.error());
        const BatchJob job{.ref = {"atoll-" + task + "-1", at.task_directory(task, 1)},
                           .environment = fake_.facility.environment,
                           .commands = {{"atoll-trainer", "report"}},
                           .resources = *resources,
                           .launcher = fake_.facility.launcher,
                           .image_runner = render_image_runner(fake_.facility),
                           .image_check = render_image_report(fake_.facility),
                           .is_check = true};
        const auto submitted = at.submit(job);
        EXPECT_TRUE(submitted.ok()) << describe(submitted.error());
        const auto looks = at.look({{job.ref.directory, 0}});
        EXPECT_TRUE(looks.ok() && looks->at(0).exit_code);
        return judge_check_job(looks->at(0).lines, looks->at(0).exit_code,
                               at.tail(job.ref.directory + "/stderr.log", 2000).value(), fake_.facility);
    }
    static std::string print(const std::vector<CheckRow>& rows) {
        std::string text;
        for (const CheckRow& row : rows) text += to_json(row).dump() + "\n";
        return text;
    }
    // The fault is told by that row alone, with what mends it.
    void expect_found(const std::string& row, const std::string& seen, const std::string& mend) const {
        const auto faulty = rows();
        EXPECT_EQ(findings(sound_, faulty), std::vector<std::string>{row}) << print(faulty);
        const CheckRow found = by_name(faulty)[row.substr(row.starts_with("warn ") ? 5 : 0)];
        EXPECT_NE(found.seen.find(seen), std::string::npos) << found.seen;
        EXPECT_NE(found.mend.find(mend), std::string::npos) << found.mend;
    }

    FakeSlurmSite fake_;
    const std::vector<CheckRow> sound_ = rows();
};

TEST_F(FacilityCheckTest, ASoundSiteHasNoFailure) {
    EXPECT_EQ(by_name(sound_).size(), 10U) << print(sound_);
    for (const CheckRow& row : sound_) {
        if (row.name == "work_dir" || row.name == "compute") continue;  // this machine's disk; no job
        EXPECT_EQ(row.state, CheckState::kOk) << to_json(row);
        EXPECT_EQ(row.mend, "") << row.name;
    }
    EXPECT_EQ(check().devices, std::vector<std::string>{"cpu"});
    EXPECT_EQ(check().no_batch_answer, "");
}

TEST_F(FacilityCheckTest, HowManyNodesAJobWouldHaveIsAsManyAsThereAre) {
    const auto compute = [&] { return by_name(rows()).at("compute").seen; };
    EXPECT_EQ(compute(), "not tried: atoll facility check leonardo --job runs a minute on two nodes");
    fake_.put("bin/sinfo", "#!/bin/sh\necho 'main*|1:00:00|10:00|1-infinite|1|4|4000|up|idle'\n");
    EXPECT_EQ(compute(), "not tried: atoll facility check leonardo --job runs a minute on one node");
}

TEST_F(FacilityCheckTest, OfASiteWithoutQueuesTheMachineIsLookedAt) {
    fake_.facility.batch = BatchSpec();
    const SiteCheck found = check();
    ASSERT_TRUE(found.limits.contains(kMachine)) << print(found.rows);
    const QueueLimits& machine = found.limits.at(kMachine);
    EXPECT_EQ(machine.cores_max, std::thread::hardware_concurrency());
    EXPECT_GT(machine.memory_mib_max, 100);
    EXPECT_TRUE(found.has_looked_at_queues);
    EXPECT_NE(by_name(found.rows).at("machine").seen.find("B of memory"), std::string::npos) << print(found.rows);
}

TEST_F(FacilityCheckTest, AJobWhoseTemplateFailsShowsTheEndOfItsLog) {
    fake_.facility.batch.script_template = "#!/bin/sh\nset -e\nload-modules-of-nowhere\n{{ command }}\n";
    ScriptSite at = site();
    CheckJob job;
    job.id = "c1";
    job.resources = parse_check_job(json::Json::object(), fake_.facility).value();
    ASSERT_TRUE(submit_check(at, job).ok());
    const auto seen = look_at_check(at, job);
    ASSERT_TRUE(seen.ok()) << describe(seen.error());
    EXPECT_EQ(seen->state, "ended");
    EXPECT_NE(print(seen->rows).find("load-modules-of-nowhere"), std::string::npos) << print(seen->rows);
}

TEST_F(FacilityCheckTest, SlurmThatIsNotInThePathIsToldWithWhereALoginShellHasIt) {
    std::filesystem::remove(fake_.path("bin/sbatch"));
    expect_found("scheduler", "not in PATH: sbatch; a login shell has them in /opt/slurm/bin",
                 "atoll facility set leonardo --env PATH=/opt/slurm/bin:" + fake_.path("bin"));
    EXPECT_FALSE(check().no_batch_answer) << "nobody has asked the batch system";
}

TEST_F(FacilityCheckTest, APartitionThatSlurmDoesNotHaveIsTold) {
    fake_.facility.batch.queues["main"].partition = "none";
    expect_found("queue main", "Slurm has no partition \"none\"; it has main",
                 "atoll facility set leonardo --set batch.queues.main.partition=PARTITION");
}

TEST_F(FacilityCheckTest, WhatTheRecordSaysOfAQueueAndSlurmRefusesIsTold) {
    fake_.facility.batch.queues["main"].account = "it's gone";
    const auto refuse = [&](const std::string& words) {
        fake_.put("bin/sbatch",
                  "#!/bin/sh\n[ \"$1\" != --version ] || { echo slurm 22.05.8; exit; }\n"
                  "case \" $* \" in *\" --account=it's gone \"*) ;; *) exit ;; esac\necho \"" +
                      words + "\" >&2\nexit 1\n");
    };
    refuse("allocation failure: Invalid account or account/partition combination specified");
    expect_found("queue main", "Slurm takes no job there: allocation failure: Invalid account or account/partition",
                 "atoll facility set leonardo --set batch.queues.main.account=NAME");
    refuse("allocation failure: Invalid qos specification");
    expect_found("queue main", "Invalid qos specification", "batch.queues.main.qos=NAME");
    refuse("allocation failure: Requested nodes are busy");
    EXPECT_EQ(findings(sound_, rows()), std::vector<std::string>()) << "that passes, or is of what a job asks for";
}

TEST_F(FacilityCheckTest, TimeBeyondAQueuesLimitIsTold) {
    fake_.facility.batch.queues["main"].time_max_s = 7200;
    expect_found("queue main", "the record says 2:00:00 at most, Slurm gives 1:00:00",
                 "atoll facility set leonardo --set batch.queues.main.time_max=1:00:00");
    fake_.facility.batch.queues["main"].time_max_s = 0;
    fake_.facility.evaluation.time_s = 7200;
    expect_found("queue main", "evaluations ask for 2:00:00", "--set evaluation.time=1:00:00");
}

TEST_F(FacilityCheckTest, AnotherByteOfTheImageIsToldByItsTimeAndThenByItsDigest) {
    const auto first = by_name(job_rows("first0001"));
    ASSERT_EQ(first.at("image").state, CheckState::kOk) << to_json(first.at("image"));
    fake_.facility.image->sha256 = first.at("image").seen.substr(7, 64);
    EXPECT_EQ(findings(sound_, rows()), std::vector<std::string>());
    EXPECT_EQ(by_name(job_rows("second001")).at("image").state, CheckState::kOk);
    fake_.flip_a_byte_of_the_image();
    expect_found("warn image", "is another file than the one that was hashed", "atoll facility check leonardo --job");
    const auto job = by_name(job_rows("third0001"));
    EXPECT_EQ(job.at("image").state, CheckState::kFail);
    EXPECT_NE(job.at("image").seen.find("the record says " + fake_.facility.image->sha256), std::string::npos);
    EXPECT_EQ(job.at("launcher").state, CheckState::kOk) << to_json(job.at("launcher"));
    expect_found("image", "the record says " + fake_.facility.image->sha256, "atoll facility put-image leonardo FILE");
}

TEST_F(FacilityCheckTest, APmixThatSrunDoesNotHaveIsTold) {
    fake_.facility.launcher = "srun --mpi=pmix_v9 --kill-on-bad-exit=1";
    expect_found("launcher", "--mpi=pmix_v9 is asked for, srun has none, pmi2, pmix, pmix_v4",
                 "atoll facility set leonardo --launcher 'srun --mpi=pmix_v4 --kill-on-bad-exit=1'");
    const auto job = by_name(job_rows("wrongpmix"));
    EXPECT_EQ(job.at("launcher").state, CheckState::kFail);
    EXPECT_NE(job.at("launcher").seen.find("cannot find mpi plugin"), std::string::npos) << job.at("launcher").seen;
}

TEST_F(FacilityCheckTest, AFullWorkDirectoryIsTold) {
    const std::string disk = fake_.path("work");
    if (::geteuid() != 0 || run_command({"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk})->exit_code != 0)
        GTEST_SKIP() << "only root can mount a small file system";
    (void)run_command({"sh", "-c", "cat /dev/zero >\"$1\"/full 2>/dev/null", "sh", disk});
    expect_found("work_dir", "No space left on device", "atoll facility set leonardo --work-dir DIRECTORY");
    (void)run_command({"umount", disk});
}

TEST_F(FacilityCheckTest, AStoreThatIsBlockedIsTold) {
    fake_.store_url = "http://127.0.0.1:1/store";
    expect_found("store", "Connection refused", "atoll doctor");
    fake_.facility.transport = {TransportKind::kSsh, "login01", ""};
    const CheckRow elsewhere = by_name(rows())["store"];
    EXPECT_EQ(elsewhere.state, CheckState::kFail) << to_json(elsewhere);
    EXPECT_EQ(elsewhere.mend, "atoll facility set leonardo --set transport.data=ssh");
}

// Of a local facility's store curl knows nothing: what it says would be no fault of the store's.
TEST_F(FacilityCheckTest, AStoreBehindASocketIsAskedByAtollAlone) {
    fake_.facility.image.reset();
    fake_.facility.programs = fake_.path("inside");
    fake_.store_url = "unix:/run/atoll/gateway.sock:/store";
    fake_.put("bin/curl", "#!/bin/sh\necho 'curl: (1) Protocol \"unix\" not supported' >&2\nexit 1\n");
    fake_.put("inside/atoll", "#!/bin/sh\nexit 1\n");
    auto found = by_name(rows());
    EXPECT_EQ(found["atoll"].state, CheckState::kFail) << to_json(found["atoll"]);
    EXPECT_EQ(found["store"].state, CheckState::kSkipped) << to_json(found["store"]);
    EXPECT_EQ(found["store"].mend, "");
}

TEST_F(FacilityCheckTest, ACoordinatorWithoutAPublicUrlIsTold) {
    fake_.store_url = "";
    expect_found("store", "the coordinator has no public URL", "--public-url URL");
}

TEST_F(FacilityCheckTest, AnImageForAnotherArchitectureIsTold) {
    fake_.put_image("04");
    expect_found("image", "is for aarch64 machines, but the compute nodes are ",
                 "then atoll facility put-image leonardo FILE");
}

TEST_F(FacilityCheckTest, ProgramsForAnotherArchitectureAreTold) {
    fake_.facility.image.reset();
    fake_.facility.programs = fake_.path("inside");
    const auto sound = rows();
    EXPECT_EQ(by_name(sound)["atoll"].state, CheckState::kOk) << print(sound);
    std::string elf = read_file("/bin/true").value().substr(0, 64);
    elf[18] = static_cast<char>(183);
    fake_.put("inside/atoll-trainer", elf);
    const auto faulty = rows();
    EXPECT_EQ(findings(sound, faulty), std::vector<std::string>{"atoll"}) << print(faulty);
    EXPECT_NE(by_name(faulty)["atoll"].seen.find("is for aarch64 machines"), std::string::npos) << print(faulty);
}

TEST_F(FacilityCheckTest, AClockThatIsWrongIsTold) {
    const auto put_clock = [&](const std::string& change) {
        const std::string real = std::filesystem::exists("/usr/bin/date") ? "/usr/bin/date" : "/bin/date";
        fake_.put("bin/date", "#!/bin/sh\necho $(($(" + real + " +%s) " + change + "))\n");
    };
    put_clock("+ 300");
    expect_found("clock", " ahead of the coordinator's", "timedatectl");
    put_clock("- 300");
    expect_found("clock", " behind the coordinator's", "timedatectl");
    put_clock("+ 20");
    expect_found("warn clock", " ahead of the coordinator's", "timedatectl");
}

TEST_F(FacilityCheckTest, ToolsThatTheScriptsNeedAreLookedFor) {
    std::filesystem::remove(fake_.path("bin/sha256sum"));
    expect_found("programs", "sha256sum", "atoll facility set leonardo --env PATH=DIRECTORY-OF-THEM:");
}

TEST_F(FacilityCheckTest, NodesThatTakeNoJobsAreTold) {
    const auto put_sinfo = [&](const std::string& lines) {
        fake_.put("bin/sinfo", "#!/bin/sh\nprintf '" + lines + "'\n");
    };
    put_sinfo(
        "main*|1:00:00|10:00|1-infinite|3|4|4000|up|drained\\nmain*|1:00:00|10:00|1-infinite|1|4|4000|up|down*\\n");
    expect_found("queue main", "4 of its 4 nodes take no jobs now: 1 down and silent, 3 drained", "sinfo -R");
    for (const char* silent : {"", "welcome to the machine\\n"}) {
        put_sinfo(silent);
        expect_found("scheduler", "sinfo printed nothing that can be read as partitions", "sinfo");
    }
    put_sinfo("main*|1:00:00|10:00|1-infinite|2|4|4000|up|idle\\nmain*|1:00:00|10:00|1-infinite|2|4|4000|up|down*\\n");
    expect_found("warn queue main", "2 of its 4 nodes take no jobs now: 2 down and silent", "sinfo -R");
    put_sinfo("main*|1:00:00|10:00|1-infinite|4|4|4000|down|idle\\n");
    expect_found("queue main", "the partition is down: jobs wait in it and none starts", "ask the site");
}

TEST_F(FacilityCheckTest, AControllerThatDoesNotAnswerIsTold) {
    fake_.put("bin/squeue",
              "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n");
    expect_found("scheduler", "Slurm does not answer: slurm_load_jobs error: Unable to contact slurm controller",
                 "ask the site whether slurmctld is up");
    EXPECT_EQ(check().no_batch_answer, by_name(rows())["scheduler"].seen);
}

TEST_F(FacilityCheckTest, AnSinfoThatFailsIsAWarning) {
    fake_.put("bin/sinfo", "#!/bin/sh\necho 'sinfo: error: module foo not loaded' >&2\nexit 3\n");
    const auto found = by_name(rows());
    EXPECT_EQ(found.at("scheduler").state, CheckState::kWarn);
    EXPECT_NE(found.at("scheduler").mend.find("try `sinfo`"), std::string::npos) << found.at("scheduler").mend;
    EXPECT_NE(found.at("queue main").seen.find("module foo not loaded"), std::string::npos);
}

TEST_F(FacilityCheckTest, AccountingThatHangsIsToldFromNone) {
    fake_.put("bin/sacct", "#!/bin/sh\nsleep 10\n");
    expect_found("warn scheduler", "slurm 22.05.8 answers; sacct gave no answer within 5 s", "slurmdbd");
    fake_.put("bin/sacct", "#!/bin/sh\nexit 1\n");
    EXPECT_EQ(findings(sound_, rows()), std::vector<std::string>());
    EXPECT_NE(by_name(rows()).at("scheduler").seen.find("no accounting"), std::string::npos);
}

TEST_F(FacilityCheckTest, MungeThatIsAwayIsCalledThat) {
    fake_.put("bin/squeue",
              "#!/bin/sh\nfor i in 1 2; do echo 'squeue: error: Munge encode failed: Failed to access' >&2; done\n"
              "echo 'slurm_load_jobs error: Protocol authentication error' >&2\nexit 1\n");
    const CheckRow found = by_name(rows()).at("scheduler");
    EXPECT_EQ(found.state, CheckState::kFail);
    EXPECT_EQ(
        found.seen,
        "Slurm does not answer: slurm_load_jobs error: Protocol authentication error; squeue: error: Munge encode "
        "failed: Failed to access");
    EXPECT_NE(found.mend.find("munged runs"), std::string::npos) << found.mend;
}

TEST_F(FacilityCheckTest, ASqueueThatTasksCannotUseIsTold) {
    fake_.put("bin/squeue", "#!/bin/sh\necho ' JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)'\n");
    expect_found("scheduler", "squeue ignores --format (is it a wrapper?) and prints: JOBID PARTITION", "squeue --me");
    fake_.put("bin/squeue", kFakeSqueue + std::string("sleep 10\n"));
    expect_found("scheduler", "s to answer, and tasks wait for it for 8 s", "squeue --me");
}

TEST_F(FacilityCheckTest, ASlowVersionIsNoSilenceOfTheBatchSystem) {
    fake_.put("bin/sbatch", "#!/bin/sh\nexit 1\n");
    expect_found("warn scheduler", "squeue answers, but `sbatch --version` printed nothing within 5 s", "a wrapper");
    EXPECT_EQ(check().no_batch_answer, "");
}

TEST_F(FacilityCheckTest, FewerRanksThanWereAskedForAreAFailure) {
    fake_.put("inside/atoll-trainer", "#!/bin/sh\necho '{\"version\":\"1\",\"ranks\":[{\"rank\":0}]}'\n");
    const CheckRow one = by_name(job_rows("fewer0001")).at("launcher");
    EXPECT_EQ(one.state, CheckState::kFail);
    EXPECT_NE(one.seen.find("1 of the 2 ranks that were asked for have started"), std::string::npos) << one.seen;
}

TEST_F(FacilityCheckTest, AJobShowsWhatEachRankFound) {
    const auto job = by_name(job_rows("ranks0001"));
    EXPECT_EQ(job.at("launcher").seen, "2 ranks found one another by Open MPI 4");
    EXPECT_EQ(job.at("rank 1").seen, "n2, local rank 0 of 1, 0 GPUs, computes on cpu with 4 threads");
    fake_.put("inside/atoll-trainer",
              "#!/bin/sh\nfor i in 1 2; do echo '{\"version\":\"1\",\"ranks\":[{\"rank\":0}]}'; done\n");
    const CheckRow alone = by_name(job_rows("alone0001")).at("launcher");
    EXPECT_EQ(alone.state, CheckState::kFail);
    EXPECT_NE(alone.seen.find("2 processes are no ranks of one another"), std::string::npos) << alone.seen;
}

}  // namespace
}  // namespace atl::dispatch
