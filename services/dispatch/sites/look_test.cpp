#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/testing/fake_slurm_site.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {
namespace {

TEST(LookTest, OneAttemptThatCannotBeEnteredStopsTheLookAtNoOther) {
    const TemporaryDirectory directory;
    Facility facility;
    facility.batch.kind = BatchKind::kLocal;
    facility.work_dir = directory.path() / "work";
    ScriptSite site(facility, make_local_transport(), "");
    const std::string odd = site.task_directory("odd", 1);
    const std::string good = site.task_directory("good", 1);
    std::filesystem::create_directories(good);
    std::filesystem::create_directories(std::filesystem::path(odd).parent_path());
    ASSERT_TRUE(write_file_atomic(odd, "a file where a directory was").ok());
    ASSERT_TRUE(write_file_atomic(good + "/stdout.jsonl", "{}\n").ok());
    ASSERT_TRUE(write_file_atomic(good + "/end.json", "{\"exit_code\":0}").ok());
    const auto looks = site.look({{good, 0}, {odd, 7}, {good, 3}});
    ASSERT_TRUE(looks.ok()) << describe(looks.error());
    EXPECT_EQ(looks->at(1).unknown, odd + " cannot be entered");
    EXPECT_EQ(looks->at(1).log_offset, 7);
    for (const std::size_t other : {0U, 2U}) {
        EXPECT_EQ(looks->at(other).exit_code, 0);
        EXPECT_EQ(looks->at(other).log_offset, 3);
        EXPECT_EQ(looks->at(other).unknown, "");
    }
}

TEST(LookTest, ItTellsHowMuchRoomTheWorkDirectoryHas) {
    const TemporaryDirectory directory;
    Facility facility;
    facility.batch.kind = BatchKind::kLocal;
    facility.work_dir = directory.path() / "work";
    std::filesystem::create_directories(std::filesystem::path(facility.work_dir) / "tasks");
    ScriptSite site(facility, make_local_transport(), "");
    const auto free_kib = [&] { return site.look({{site.task_directory("t", 1), 0}}).value().at(0).free_kib; };
    EXPECT_GT(free_kib(), 0);
    if (::geteuid() != 0 ||
        run_command({"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", facility.work_dir})->exit_code != 0)
        GTEST_SKIP() << "only root can mount a small file system";
    std::filesystem::create_directories(std::filesystem::path(facility.work_dir) / "tasks");
    (void)run_command({"sh", "-c", "cat /dev/zero >\"$1\"/full 2>/dev/null", "sh", facility.work_dir});
    EXPECT_EQ(free_kib(), 0);
    EXPECT_EQ(run_command({"umount", facility.work_dir})->exit_code, 0);
}

// Of an attempt that has begun, and of one that nobody knows.
class LookAndAskTest : public testing::Test {
  protected:
    void SetUp() override {
        std::filesystem::create_directories(begun_.directory);
        ASSERT_TRUE(write_file_atomic(begun_.directory + "/started", "").ok());
        ASSERT_TRUE(write_file_atomic(begun_.directory + "/stdout.jsonl", "squeue\nend\n").ok());
    }
    LookAndQueue look_and_ask(const Facility& facility) {
        ScriptSite at(facility, make_local_transport(), "");
        const auto found = at.look_and_ask({{begun_.directory, 0}, {unknown_.directory, 0}}, {begun_, unknown_});
        EXPECT_TRUE(found.ok()) << describe(found.error());
        if (!found.ok()) return {};
        EXPECT_EQ(found->looks.at(0).lines, (std::vector<std::string>{"squeue", "end"}));
        EXPECT_TRUE(found->looks.at(0).started && !found->looks.at(1).started);
        return *found;
    }

    // As `process` of the local batch system has it.
    static std::string this_process() {
        const std::string stat = read_file("/proc/self/stat").value();
        std::istringstream fields(stat.substr(stat.rfind(')') + 2));
        std::string start;
        for (int field = 3; field <= 22; ++field) fields >> start;
        return std::to_string(::getpid()) + " " + start + " " + read_file("/proc/sys/kernel/random/boot_id").value();
    }

    FakeSlurmSite slurm_;
    const BatchJobRef begun_{"atoll-begun-1", slurm_.path("work/tasks/begun/1")};
    const BatchJobRef unknown_{"atoll-unknown-1", slurm_.path("work/tasks/unknown/1")};
};

TEST_F(LookAndAskTest, TheQueuesAnswerStandsBehindTheLogs) {
    slurm_.put("bin/squeue", kFakeSqueue + std::string("echo 'atoll-begun-1|17|PENDING|Priority'\n"));
    const auto found = look_and_ask(slurm_.facility);
    ASSERT_TRUE(found.queue.ok());
    EXPECT_EQ(found.queue->at(0).state, BatchState::kQueued);
    EXPECT_EQ(found.queue->at(0).reason, "Priority");
    EXPECT_EQ(found.queue->at(1).state, BatchState::kUnknownToQueue);
}

TEST_F(LookAndAskTest, WhereTheQueueGivesNoAnswerTheLogsAreSeenAllTheSame) {
    slurm_.put("bin/squeue", kFakeSqueue + std::string("echo 'atoll-begun-1|17|PENDING|Priority'\nexit 1\n"));
    EXPECT_TRUE(look_and_ask(slurm_.facility).queue.error().cause == Cause::kBatchSystem);
}

// What a site's wrapper makes of squeue must not look like a queue that knows no job: healthy ones would be ended.
TEST_F(LookAndAskTest, OtherColumnsThanWereAskedForSayNothingOfAnyJob) {
    slurm_.put(
        "bin/squeue",
        "#!/bin/sh\necho '             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)'\n"
        "echo '               254      main atoll-be    atoll  R       1:02      1 n1'\n");
    const auto queue = look_and_ask(slurm_.facility).queue;
    ASSERT_FALSE(queue.ok());
    EXPECT_TRUE(queue.error().cause == Cause::kBatchSystem);
    EXPECT_NE(queue.error().message.find("did not print the columns"), std::string::npos) << queue.error().message;
    ScriptSite site(slurm_.facility, make_local_transport(), "");
    EXPECT_FALSE(site.cancel(begun_).ok()) << "whether it is gone is not known";
    EXPECT_FALSE(site.submit_script(unknown_, "exit 0\n").ok()) << "nor whether it was submitted before";
}

TEST_F(LookAndAskTest, WithoutMungeTheSilenceSaysWhomToAskForWhat) {
    slurm_.put(
        "bin/squeue",
        "#!/bin/sh\necho 'squeue: error: Munge encode failed' >&2\necho 'squeue: error: Munge encode failed' >&2\n"
        "echo 'slurm_load_jobs error: Protocol authentication error' >&2\nexit 1\n");
    EXPECT_EQ(look_and_ask(slurm_.facility).queue.error().message,
              "Slurm of leonardo does not answer: slurm_load_jobs error: Protocol authentication error; squeue: error: "
              "Munge encode failed (ask the site whether munged runs on its login node)");
}

TEST_F(LookAndAskTest, ASlurmThatHangsIsNotWaitedForLong) {
    slurm_.put("bin/sacct", "#!/bin/sh\necho 1 >>" + slurm_.path("called") + "\nexec sleep 120\n");
    const auto calls_of_sacct = [&] {
        EXPECT_TRUE(look_and_ask(slurm_.facility).queue.ok());
        return read_file(slurm_.path("called")).value().size() / 2;
    };
    EXPECT_EQ(calls_of_sacct(), 1U);
    EXPECT_EQ(calls_of_sacct(), 1U) << "each look would wait for it";
    using Clock = std::filesystem::file_time_type::clock;
    std::filesystem::last_write_time(slurm_.path("work/sacct-rests"), Clock::now() - std::chrono::minutes(3));
    EXPECT_EQ(calls_of_sacct(), 2U);
    slurm_.put("bin/squeue", "#!/bin/sh\nexec sleep 120\n");
    const auto silent = look_and_ask(slurm_.facility).queue;
    ASSERT_TRUE(!silent.ok() && silent.error().cause == Cause::kBatchSystem);
    EXPECT_EQ(silent.error().message,
              "Slurm of leonardo does not answer: squeue gave no answer within 8 s: is slurmctld up?");
}

// The local batch system's functions and the look's stand in one script, names of variables too.
TEST_F(LookAndAskTest, AProcessThatHasNotBegunIsQueuedBesideOneThatHas) {
    Facility facility = slurm_.facility;
    facility.batch = {};
    facility.batch.kind = BatchKind::kLocal;
    facility.image.reset();
    const std::string process = this_process();
    std::filesystem::create_directories(unknown_.directory);
    for (const auto& job : {begun_, unknown_}) ASSERT_TRUE(write_file_atomic(job.directory + "/process", process).ok());
    const auto found = look_and_ask(facility);
    ASSERT_TRUE(found.queue.ok());
    EXPECT_EQ(found.queue->at(0).state, BatchState::kRunning);
    EXPECT_EQ(found.queue->at(1).state, BatchState::kQueued);
}

}  // namespace
}  // namespace atl::dispatch
