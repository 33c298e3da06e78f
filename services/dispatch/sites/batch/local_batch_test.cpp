#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "services/dispatch/sites/job_script.h"
#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "tests/integration/test_stack.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

// Runs the scripts, but loses some answers: the script ran and nobody heard.
class ForgetfulTransport : public Transport {
  public:
    Result<CommandResult> run(const RemoteScript& script) override {
        auto result = local_->run(script);
        if (lose_next-- > 0) return unavailable("the answer was lost");
        return result;
    }
    std::atomic<int> lose_next = 0;

  private:
    std::unique_ptr<Transport> local_ = make_local_transport();
};

// A site that answers every script with bytes that are no text.
class BabblingTransport : public Transport {
  public:
    Result<CommandResult> run(const RemoteScript&) override {
        CommandResult result;
        result.exit_code = exit_code;
        result.out = "\xfe\n";
        result.err = "\xff";
        return result;
    }
    int exit_code = 1;
};

class LocalBatchTest : public testing::Test {
  protected:
    BatchJobRef job_ref(const std::string& name) const {
        return {"atoll-" + work_.path().filename().string() + "-" + name,
                (work_.path() / "tasks" / name / "1").string()};
    }
    // A job that adds a line to `runs` and then waits until the file `go` is there.
    struct Submission {
        BatchJobRef job;
        std::string script;
    };
    Submission submission(const std::string& name) const {
        const auto job = job_ref(name);
        const std::string path = work_.path().string();
        return {job, "echo " + name + " >>" + path + "/runs\n: >started\nwhile [ ! -e " + path +
                         "/go ]; do sleep 0.02; done\necho " + name + " >>" + path + "/ended\n"};
    }
    std::string lines(const std::string& file) const {
        const auto text = read_file(work_.path() / file);
        return text.ok() ? *text : "";
    }
    ScriptSite site(std::shared_ptr<Transport> transport) const {
        Facility facility;
        facility.batch = {BatchKind::kLocal, slots_};
        facility.work_dir = work_.path().string();
        facility.environment = environment_;
        return ScriptSite(facility, std::move(transport), "");
    }
    Result<std::string> submit(const Submission& one) const {
        return site(transport_).submit_script(one.job, one.script);
    }
    Result<std::string> submit(const BatchJob& job) const { return site(transport_).submit(job); }
    Status cancel(const std::string& name) const { return site(transport_).cancel(job_ref(name)); }
    BatchState state_of(const BatchJobRef& job) const { return site(transport_).ask_batch({job}).value().at(0).state; }
    std::string wait_reason(const std::string& name) const {
        return site(transport_).ask_batch({job_ref(name)}).value().at(0).reason;
    }
    BatchState state(const std::string& name) const { return state_of(job_ref(name)); }
    // Of its record; -1: it has not ended.
    static int exit_code(const BatchJobRef& job) {
        const auto text = read_file(std::filesystem::path(job.directory) / "end.json");
        const auto record = json::parse(text.ok() ? *text : "");
        return record.ok() ? record->at("exit_code").get<int>() : -1;
    }
    void let_go() { ASSERT_TRUE(write_file_atomic(work_.path() / "go", "").ok()); }

    void SetUp() override { std::filesystem::create_directories(work_.path() / "tasks"); }
    void TearDown() override {
        for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(cancel(name).ok());
    }

    TemporaryDirectory work_;
    std::shared_ptr<ForgetfulTransport> transport_ = std::make_shared<ForgetfulTransport>();
    std::int64_t slots_ = 1;
    std::map<std::string, std::string> environment_;
};

// Lustre may be mounted without them. Locks in a script are the machine's all the same.
TEST_F(LocalBatchTest, WhereTheFileSystemHasNoLocksSlotsAreCountedOnTheMachine) {
    const std::string slots = work_.path() / "slots";
    const std::string locks =
        "/tmp/atoll-slots-" + std::to_string(::geteuid()) + "-" + digest::sha256(slots).substr(0, 16);
    environment_["PATH"] = (work_.path() / "bin").string() + ":" + std::getenv("PATH");
    std::filesystem::create_directories(work_.path() / "bin");
    ASSERT_TRUE(write_file_atomic(work_.path() / "bin/flock",
                                  "#!/bin/sh\ncase $* in *slots/try*) exit 71 ;; esac\nexec /usr/bin/flock \"$@\"\n",
                                  0755)
                    .ok());
    ASSERT_TRUE(submit(submission("a")).ok());
    ASSERT_TRUE(submit(submission("b")).ok());
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    EXPECT_EQ(state("b"), BatchState::kQueued) << "one slot";
    EXPECT_TRUE(std::filesystem::exists(locks + "/slot.1"));
    let_go();
    EXPECT_TRUE(eventually([&] { return lines("ended") == "a\nb\n"; }));
    std::filesystem::remove_all(locks);
}

// Another login node has made the lock, or this one's clock is wrong: the files' own times tell how old it is.
TEST_F(LocalBatchTest, ALockThatWasLeftIsAsOldAsTheFileSystemSays) {
    const auto job = job_ref("a");
    const std::filesystem::path lock = std::filesystem::path(job.directory) / "submitting";
    std::filesystem::create_directories(lock);
    std::filesystem::last_write_time(lock, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(10));
    environment_["PATH"] = (work_.path() / "bin").string() + ":" + std::getenv("PATH");
    std::filesystem::create_directories(work_.path() / "bin");
    ASSERT_TRUE(write_file_atomic(work_.path() / "bin/date",
                                  "#!/bin/sh\n[ \"$*\" = +%s ] || exec /bin/date \"$@\"\n"
                                  "echo $(($(/bin/date +%s) - 3600))\n",
                                  0755)
                    .ok());
    const auto id = submit(submission("a"));
    EXPECT_TRUE(id.ok()) << describe(id.error());
    let_go();
}

// Behind a name that stands for several login nodes.
TEST_F(LocalBatchTest, WhatAnotherMachineRunsIsNeitherLostNorEnded) {
    const auto elsewhere = job_ref("elsewhere");
    std::filesystem::create_directories(elsewhere.directory);
    ASSERT_TRUE(write_file_atomic(elsewhere.directory + "/process", "17 4711 another-boot login02\n").ok());
    const auto answer = site(transport_).ask_batch({elsewhere}).value().at(0);
    EXPECT_EQ(answer.state, BatchState::kRunning);
    EXPECT_EQ(answer.reason, "on login02");
    const Status ended = cancel("elsewhere");
    EXPECT_EQ(ended.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(describe(ended.error()).find("ssh has to lead to login02"), std::string::npos) << describe(ended.error());
}

TEST_F(LocalBatchTest, SubmittingAgainAfterALostAnswerGivesTheSameJob) {
    transport_->lose_next = 1;
    EXPECT_EQ(submit(submission("a")).error().code, ErrorCode::kUnavailable);
    const auto second = submit(submission("a"));
    const auto third = submit(submission("a"));
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_EQ(*second, *third);
    let_go();
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\n");
}

TEST_F(LocalBatchTest, WhileTheFileSystemIsAwayNothingIsKnownAndNothingRunsTwice) {
    ASSERT_TRUE(submit(submission("a")).ok());
    ASSERT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    const std::filesystem::path away = work_.path().string() + ".away";
    std::filesystem::rename(work_.path(), away);
    const auto again = submit(submission("a"));
    const auto asked = site(transport_).ask_batch({job_ref("a")});
    const Status cancelled = cancel("a");
    std::filesystem::rename(away, work_.path());
    EXPECT_EQ(again.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(asked.error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(cancelled.ok());
    EXPECT_NE(state("a"), BatchState::kUnknownToQueue);
    let_go();
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\n");
}

TEST_F(LocalBatchTest, ManySubmittersAtOnceMakeOneJob) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_TRUE(submit(submission("a")).ok()); });
    threads.clear();
    let_go();
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\n");
}

TEST_F(LocalBatchTest, OneSlotRunsOneJobAtATime) {
    ASSERT_TRUE(submit(submission("a")).ok());
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    ASSERT_TRUE(submit(submission("b")).ok());
    EXPECT_EQ(state("b"), BatchState::kQueued);
    EXPECT_TRUE(eventually([&] {
        return wait_reason("b") == "its turn has not come: the facility runs 1 job at once";
    })) << wait_reason("b");
    EXPECT_EQ(wait_reason("a"), "");
    EXPECT_EQ(lines("runs"), "a\n");
    let_go();
    EXPECT_TRUE(eventually([&] { return state("b") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\nb\n");
}

TEST_F(LocalBatchTest, TwoSlotsRunTwoJobs) {
    slots_ = 2;
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(submit(submission(name)).ok());
    const auto count = [&](BatchState wanted) {
        const auto answers = site(transport_).ask_batch({job_ref("a"), job_ref("b"), job_ref("c")}).value();
        return std::count_if(answers.begin(), answers.end(), [&](const auto& one) { return one.state == wanted; });
    };
    EXPECT_TRUE(eventually([&] { return count(BatchState::kRunning) == 2; }));
    EXPECT_EQ(count(BatchState::kQueued), 1);
    const auto waits = [&](const std::string& name) {
        return wait_reason(name) == "its turn has not come: the facility runs 2 jobs at once";
    };
    EXPECT_TRUE(eventually([&] { return waits("a") || waits("b") || waits("c"); }));
}

TEST_F(LocalBatchTest, ACancelledJobIsGoneWithItsChildren) {
    ASSERT_TRUE(submit(submission("a")).ok());
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    ASSERT_TRUE(cancel("a").ok());
    EXPECT_EQ(state("a"), BatchState::kUnknownToQueue);
    EXPECT_EQ(lines("ended"), "");
    ASSERT_TRUE(submit(submission("b")).ok());
    EXPECT_TRUE(eventually([&] { return state("b") == BatchState::kRunning; })) << "the slot stayed taken";
}

TEST_F(LocalBatchTest, ASubmissionThatComesAfterItsCancellationStartsNothing) {
    ASSERT_TRUE(cancel("a").ok());
    EXPECT_EQ(submit(submission("a")).error().code, ErrorCode::kConflict);
    EXPECT_EQ(state("a"), BatchState::kUnknownToQueue);
    EXPECT_EQ(lines("runs"), "");
}

TEST_F(LocalBatchTest, AnOperationNobodySubmittedIsAbsent) {
    EXPECT_EQ(state("c"), BatchState::kUnknownToQueue);
}

TEST_F(LocalBatchTest, WhatASiteSaysIsKeptAsText) {
    const auto babbling = std::make_shared<BabblingTransport>();
    const Status refused = site(babbling).cancel(job_ref("a"));
    EXPECT_TRUE(refused.error().message.ends_with(": \xef\xbf\xbd")) << refused.error().message;
    babbling->exit_code = 0;
    const auto id = site(babbling).submit_script(job_ref("a"), "exit 0\n");
    ASSERT_FALSE(id.ok()) << *id << " would stand in commands that people are advised to type";
    EXPECT_NE(id.error().message.find("which is no job id"), std::string::npos) << id.error().message;
}

TEST_F(LocalBatchTest, TheJobScriptRecordsHowTheTrainerEnded) {
    const auto trainer = work_.path() / "atoll-trainer";
    ASSERT_TRUE(
        write_file_atomic(trainer, "#!/bin/sh\necho \"$@\"; echo $WORD >&2; cat run.json; exit 7\n", 0755).ok());
    const auto job = job_ref("a");
    ASSERT_TRUE(submit(BatchJob{.ref = job,
                                .environment = {{"WORD", "it's"}},
                                .commands = {{trainer.string(), "train", "--model", "models/m m"}},
                                .run_json = {{"lr", 0.5}}})
                    .ok());
    const std::filesystem::path directory = job.directory;
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    EXPECT_EQ(exit_code(job), 7);
    EXPECT_EQ(read_file(directory / "stderr.log").value(), "it's\n");
    EXPECT_EQ(read_file(directory / "stdout.jsonl").value(), "train --model models/m m\n{\n  \"lr\": 0.5\n}\n");
}

TEST_F(LocalBatchTest, AJobThatIsStartedAgainTrainsOnce) {
    const auto job = job_ref("a");
    const std::string count = "echo run >>" + work_.path().string() + "/runs";
    ASSERT_TRUE(submit(BatchJob{.ref = job, .commands = {{"sh", "-c", count}}}).ok());
    EXPECT_TRUE(eventually([&] { return exit_code(job) == 0; }));
    EXPECT_EQ(run_command({"sh", job.directory + "/job.sh"})->exit_code, 0);
    EXPECT_EQ(lines("runs"), "run\n");
    EXPECT_EQ(exit_code(job), 0);
}

TEST_F(LocalBatchTest, ANoticeReachesTheTrainerAndItsEndIsRecorded) {
    const auto job = job_ref("a");
    const std::string trainer =
        "echo $PPID >parent; until [ -e \"$ATOLL_STOP_FILE\" ]; do sleep 0.05; done; echo saved >out";
    ASSERT_TRUE(submit(BatchJob{.ref = job, .commands = {{"sh", "-c", trainer}}}).ok());
    const std::filesystem::path directory = job.directory;
    const auto parent = [&] { return lines("tasks/a/1/parent"); };
    ASSERT_TRUE(eventually([&] { return parent().ends_with('\n'); }));
    EXPECT_EQ(exit_code(job), -1);
    ASSERT_EQ(::kill(std::stoi(parent()), SIGUSR1), 0) << "to the batch job's shell, as Slurm's --signal=B:USR1";
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    EXPECT_EQ(exit_code(job), 0);
    EXPECT_EQ(read_file(directory / "out").value(), "saved\n");
}

TEST_F(LocalBatchTest, ANoticeThatComesBetweenTwoCommandsEndsTheSecond) {
    const auto job = job_ref("a");
    const std::string trainer = "until [ -e \"$ATOLL_STOP_FILE\" ]; do sleep 0.05; done; exit 7";
    ASSERT_TRUE(
        submit(BatchJob{.ref = job, .commands = {{"sh", "-c", "kill -USR1 $PPID"}, {"sh", "-c", trainer}}}).ok());
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    EXPECT_EQ(exit_code(job), 7);
}

TEST_F(LocalBatchTest, ANoticeThatComesLateEndsNoSealing) {
    const auto job = job_ref("a");
    const std::string deaf = "mkdir out; kill -USR1 $PPID";
    const std::string seal = "kill -USR1 $PPID; sleep 2; : >sealed";
    ASSERT_TRUE(submit(BatchJob{.ref = job, .commands = {{"sh", "-c", deaf}}, .seal = {"sh", "-c", seal}}).ok());
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    EXPECT_EQ(exit_code(job), 0);
    EXPECT_TRUE(std::filesystem::exists(job.directory + "/sealed"));
}

TEST_F(LocalBatchTest, TheNewestStateOfEarlierAttemptsIsTakenOverAndTheyStartNoMore) {
    const std::filesystem::path tasks = work_.path() / "tasks" / "a";
    for (const char* attempt : {"1", "2", "3"}) std::filesystem::create_directories(tasks / attempt);
    for (const char* attempt : {"1", "2"}) {
        std::filesystem::create_directories(tasks / attempt / "out.state");
        ASSERT_TRUE(write_file_atomic(tasks / attempt / "out.state" / "step", attempt).ok());
    }
    const BatchJobRef job{job_ref("a").name, (tasks / "4").string()};
    const BatchJob description{.ref = job,
                               .commands = {{"cat", "out.state/step"}},
                               .earlier_attempts = {tasks / "3", tasks / "2", tasks / "1"}};
    ASSERT_TRUE(submit(description).ok());
    EXPECT_TRUE(eventually([&] { return exit_code(job) == 0; }));
    EXPECT_EQ(read_file(tasks / "4" / "stdout.jsonl").value(), "2");
    EXPECT_FALSE(std::filesystem::exists(tasks / "2" / "out.state")) << "whoever still wrote it finds no place";
    const BatchJobRef late{"atoll-late-3", (tasks / "3").string()};
    ASSERT_TRUE(submit(BatchJob{.ref = late, .commands = {{"touch", "ran"}}}).ok());
    EXPECT_TRUE(eventually([&] { return state_of(late) == BatchState::kUnknownToQueue; }));
    EXPECT_FALSE(std::filesystem::exists(tasks / "3" / "ran"));
}

// The record's bytes are taken at the start.
TEST_F(LocalBatchTest, TheEndIsRecordedOnAFullDisk) {
    const std::string disk = (work_.path() / "disk").string();
    std::filesystem::create_directories(disk);
    if (::geteuid() != 0 || run_command({"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk})->exit_code != 0)
        GTEST_SKIP() << "only root can mount a small file system";
    const BatchJobRef job{job_ref("a").name, disk + "/1"};
    // The disk fills only after the submission has written its own record.
    const std::string wait = "while [ ! -e " + work_.path().string() + "/go ]; do sleep 0.02; done; ";
    const std::string fill = "cat /dev/zero >full; exit 7";
    EXPECT_TRUE(submit(BatchJob{.ref = job, .commands = {{"sh", "-c", wait + fill}}}).ok());
    let_go();
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    EXPECT_EQ(exit_code(job), 7);
    EXPECT_TRUE(eventually([&] { return run_command({"umount", disk})->exit_code == 0; }));
}

TEST_F(LocalBatchTest, OnADiskThatIsFullAtTheStartNothingBegins) {
    const std::string disk = (work_.path() / "disk").string();
    std::filesystem::create_directories(disk);
    if (::geteuid() != 0 || run_command({"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk})->exit_code != 0)
        GTEST_SKIP() << "only root can mount a small file system";
    ASSERT_TRUE(submit(submission("b")).ok());  // which has the one slot
    ASSERT_TRUE(eventually([&] { return state("b") == BatchState::kRunning; }));
    const BatchJobRef job{job_ref("a").name, disk + "/1"};
    EXPECT_TRUE(submit(BatchJob{.ref = job, .commands = {{"touch", work_.path().string() + "/began"}}}).ok());
    ASSERT_TRUE(run_command({"sh", "-c", "cat /dev/zero >" + disk + "/full"}).ok());
    let_go();
    EXPECT_TRUE(eventually([&] { return state_of(job) == BatchState::kUnknownToQueue; }));
    for (const std::string& file : {job.directory + "/started", work_.path().string() + "/began"})
        EXPECT_FALSE(std::filesystem::exists(file)) << file;
    EXPECT_TRUE(eventually([&] { return run_command({"umount", disk})->exit_code == 0; }));
}

// Whatever is written last before there is no more room, the job starts once there is.
TEST_F(LocalBatchTest, AJobThatFoundNoRoomAtItsSubmissionStartsOnceThereIsSome) {
    const std::string disk = (work_.path() / "disk").string();
    std::filesystem::create_directories(disk);
    if (::geteuid() != 0 || run_command({"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk})->exit_code != 0)
        GTEST_SKIP() << "only root can mount a small file system";
    const auto fill_but = [&](int pages) {
        const std::string size = std::to_string(16 - pages);
        ASSERT_TRUE(run_command({"sh", "-c", "rm -rf \"$1\"/*; head -c $(($2 * 4096)) /dev/zero >\"$1/full\"", "sh",
                                 disk, size})
                        .ok());
    };
    int refused = 0;
    for (int pages = 0; pages < 8; ++pages) {
        fill_but(pages);
        const BatchJobRef job{job_ref("a").name + std::to_string(pages), disk + "/1"};
        const BatchJob description{.ref = job, .commands = {{"true"}}};
        refused += submit(description).ok() ? 0 : 1;
        std::filesystem::remove(disk + "/full");
        const auto again = submit(description);
        EXPECT_TRUE(again.ok()) << pages << ": " << again.error().message;
        EXPECT_TRUE(eventually([&] { return state_of(job) == BatchState::kUnknownToQueue; })) << pages;
    }
    EXPECT_GE(refused, 2);
    EXPECT_TRUE(eventually([&] { return run_command({"umount", disk})->exit_code == 0; }));
}

TEST_F(LocalBatchTest, ARecordThatNamesNobodyKeepsNoJobFromStarting) {
    const auto job = job_ref("a");
    std::filesystem::create_directories(job.directory);
    ASSERT_TRUE(write_file_atomic(std::filesystem::path(job.directory) / "process", "").ok());
    ASSERT_TRUE(submit(submission("a")).ok());
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    let_go();
}

// Under mpirun; each Open MPI refuses this in its own way when it is not told.
TEST_F(LocalBatchTest, MoreRanksThanCoresStart) {
    const auto trainer = work_.path() / "atoll-trainer";
    ASSERT_TRUE(write_file_atomic(trainer, "#!/bin/sh\necho \"of $OMPI_COMM_WORLD_SIZE\"\n", 0755).ok());
    const unsigned ranks = 2 * std::thread::hardware_concurrency();
    const auto job = job_ref("a");
    ASSERT_TRUE(
        submit(BatchJob{.ref = job, .commands = {{trainer.string()}}, .resources = {.tasks_per_node = ranks}}).ok());
    const std::filesystem::path directory = job.directory;
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    std::string expected;
    for (unsigned rank = 0; rank < ranks; ++rank) expected += "of " + std::to_string(ranks) + "\n";
    EXPECT_EQ(read_file(directory / "stdout.jsonl").value(), expected) << read_file(directory / "stderr.log").value();
}

TEST_F(LocalBatchTest, MoreRanksThanAMachineBearsStartNothing) {
    const auto job = job_ref("a");
    ASSERT_TRUE(
        submit(BatchJob{.ref = job, .commands = {{"atoll-trainer"}}, .resources = {.tasks_per_node = 100'000}}).ok());
    const std::filesystem::path directory = job.directory;
    EXPECT_TRUE(eventually([&] { return exit_code(job) >= 0; }));
    EXPECT_EQ(exit_code(job), 2);
    const std::string said = read_file(directory / "stderr.log").value();
    EXPECT_TRUE(said.starts_with("atoll-trainer train: ranks: 100000 ")) << said;
}

}  // namespace
}  // namespace atl::dispatch
