#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "services/dispatch/sites/batch/batch_system.h"
#include "services/dispatch/sites/job_script.h"
#include "shared/base/file.h"

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
    BatchSubmission submission(const std::string& name) const {
        const auto job = job_ref(name);
        const std::string path = work_.path().string();
        return {job, "echo " + name + " >>" + path + "/runs\n: >started\nwhile [ ! -e " + path +
                         "/go ]; do sleep 0.02; done\necho " + name + " >>" + path + "/ended\n"};
    }
    std::string lines(const std::string& file) const {
        const auto text = read_file(work_.path() / file);
        return text.ok() ? *text : "";
    }
    BatchState state(const std::string& name) { return batch_->poll(transport_, {job_ref(name)}).value().at(0); }
    template <class Condition>
    bool eventually(Condition condition) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (std::chrono::steady_clock::now() < deadline) {
            if (condition()) return true;
            std::this_thread::sleep_for(milliseconds(20));
        }
        return false;
    }
    void let_go() { ASSERT_TRUE(write_file_atomic(work_.path() / "go", "").ok()); }

    void SetUp() override { std::filesystem::create_directories(work_.path() / "tasks"); }
    void TearDown() override {
        for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(batch_->cancel(transport_, job_ref(name)).ok());
    }

    TemporaryDirectory work_;
    ForgetfulTransport transport_;
    std::unique_ptr<BatchSystem> batch_ = make_local_batch(1, work_.path().string());
};

TEST_F(LocalBatchTest, SubmittingAgainAfterALostAnswerGivesTheSameJob) {
    transport_.lose_next = 1;
    EXPECT_EQ(batch_->submit(transport_, submission("a")).error().code, ErrorCode::kUnavailable);
    const auto second = batch_->submit(transport_, submission("a"));
    const auto third = batch_->submit(transport_, submission("a"));
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_EQ(*second, *third);
    let_go();
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\n");
}

TEST_F(LocalBatchTest, WhileTheFileSystemIsAwayNothingIsKnownAndNothingRunsTwice) {
    ASSERT_TRUE(batch_->submit(transport_, submission("a")).ok());
    ASSERT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    const std::filesystem::path away = work_.path().string() + ".away";
    std::filesystem::rename(work_.path(), away);
    const auto again = batch_->submit(transport_, submission("a"));
    const auto polled = batch_->poll(transport_, {job_ref("a")});
    const Status cancelled = batch_->cancel(transport_, job_ref("a"));
    std::filesystem::rename(away, work_.path());
    EXPECT_EQ(again.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(polled.error().code, ErrorCode::kUnavailable);
    EXPECT_FALSE(cancelled.ok());
    EXPECT_NE(state("a"), BatchState::kUnknownToQueue);
    let_go();
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\n");
}

TEST_F(LocalBatchTest, ManySubmittersAtOnceMakeOneJob) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] { EXPECT_TRUE(batch_->submit(transport_, submission("a")).ok()); });
    threads.clear();
    let_go();
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\n");
}

TEST_F(LocalBatchTest, OneSlotRunsOneJobAtATime) {
    ASSERT_TRUE(batch_->submit(transport_, submission("a")).ok());
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    ASSERT_TRUE(batch_->submit(transport_, submission("b")).ok());
    EXPECT_EQ(state("b"), BatchState::kQueued);
    EXPECT_EQ(lines("runs"), "a\n");
    let_go();
    EXPECT_TRUE(eventually([&] { return state("b") == BatchState::kUnknownToQueue; }));
    EXPECT_EQ(lines("runs"), "a\nb\n");
}

TEST_F(LocalBatchTest, TwoSlotsRunTwoJobs) {
    batch_ = make_local_batch(2, work_.path().string());
    for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(batch_->submit(transport_, submission(name)).ok());
    const auto count = [&](BatchState wanted) {
        const auto states = batch_->poll(transport_, {job_ref("a"), job_ref("b"), job_ref("c")}).value();
        return std::count(states.begin(), states.end(), wanted);
    };
    EXPECT_TRUE(eventually([&] { return count(BatchState::kRunning) == 2; }));
    EXPECT_EQ(count(BatchState::kQueued), 1);
}

TEST_F(LocalBatchTest, ACancelledJobIsGoneWithItsChildren) {
    ASSERT_TRUE(batch_->submit(transport_, submission("a")).ok());
    EXPECT_TRUE(eventually([&] { return state("a") == BatchState::kRunning; }));
    ASSERT_TRUE(batch_->cancel(transport_, job_ref("a")).ok());
    EXPECT_EQ(state("a"), BatchState::kUnknownToQueue);
    EXPECT_EQ(lines("ended"), "");
    ASSERT_TRUE(batch_->submit(transport_, submission("b")).ok());
    EXPECT_TRUE(eventually([&] { return state("b") == BatchState::kRunning; })) << "the slot stayed taken";
}

TEST_F(LocalBatchTest, ASubmissionThatComesAfterItsCancellationStartsNothing) {
    ASSERT_TRUE(batch_->cancel(transport_, job_ref("a")).ok());
    EXPECT_EQ(batch_->submit(transport_, submission("a")).error().code, ErrorCode::kConflict);
    EXPECT_EQ(state("a"), BatchState::kUnknownToQueue);
    EXPECT_EQ(lines("runs"), "");
}

TEST_F(LocalBatchTest, AnOperationNobodySubmittedIsAbsent) {
    EXPECT_EQ(state("c"), BatchState::kUnknownToQueue);
}

TEST_F(LocalBatchTest, WhatASiteSaysIsKeptAsText) {
    BabblingTransport babbling;
    const Status refused = batch_->cancel(babbling, job_ref("a"));
    EXPECT_TRUE(refused.error().message.ends_with(": \xef\xbf\xbd")) << refused.error().message;
    babbling.exit_code = 0;
    EXPECT_EQ(batch_->submit(babbling, submission("a")).value(), "\xef\xbf\xbd");
}

TEST_F(LocalBatchTest, TheJobScriptRecordsHowTheTrainerEnded) {
    const auto trainer = work_.path() / "atoll-trainer";
    ASSERT_TRUE(
        write_file_atomic(trainer, "#!/bin/sh\necho \"$@\"; echo $WORD >&2; cat run.json; exit 7\n", 0755).ok());
    const auto job = job_ref("a");
    const std::string script = render_job_script({.ref = job,
                                                  .environment = {{"WORD", "it's"}},
                                                  .commands = {{trainer.string(), "train", "--model", "models/m m"}},
                                                  .run_json = {{"lr", 0.5}}});
    ASSERT_TRUE(batch_->submit(transport_, {job, script}).ok());
    const std::filesystem::path directory = job.directory;
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(directory / "exit.json"); }));
    EXPECT_EQ(json::parse(read_file(directory / "exit.json").value())->at("exit_code"), 7);
    EXPECT_EQ(read_file(directory / "stderr.log").value(), "it's\n");
    EXPECT_EQ(read_file(directory / "stdout.jsonl").value(), "train --model models/m m\n{\n  \"lr\": 0.5\n}\n");
}

// Under mpirun; each Open MPI refuses this in its own way when it is not told.
TEST_F(LocalBatchTest, MoreRanksThanCoresStart) {
    const auto trainer = work_.path() / "atoll-trainer";
    ASSERT_TRUE(write_file_atomic(trainer, "#!/bin/sh\necho \"of $OMPI_COMM_WORLD_SIZE\"\n", 0755).ok());
    const unsigned ranks = 2 * std::thread::hardware_concurrency();
    const auto job = job_ref("a");
    const std::string script = render_job_script({.ref = job, .commands = {{trainer.string()}}, .ranks = ranks});
    ASSERT_TRUE(batch_->submit(transport_, {job, script}).ok());
    const std::filesystem::path directory = job.directory;
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(directory / "exit.json"); }));
    std::string expected;
    for (unsigned rank = 0; rank < ranks; ++rank) expected += "of " + std::to_string(ranks) + "\n";
    EXPECT_EQ(read_file(directory / "stdout.jsonl").value(), expected) << read_file(directory / "stderr.log").value();
}

TEST_F(LocalBatchTest, MoreRanksThanAMachineBearsStartNothing) {
    const auto job = job_ref("a");
    const std::string script = render_job_script({.ref = job, .commands = {{"atoll-trainer"}}, .ranks = 100'000});
    ASSERT_TRUE(batch_->submit(transport_, {job, script}).ok());
    const std::filesystem::path directory = job.directory;
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(directory / "exit.json"); }));
    EXPECT_EQ(json::parse(read_file(directory / "exit.json").value())->at("exit_code"), 2);
    const std::string said = read_file(directory / "stderr.log").value();
    EXPECT_TRUE(said.starts_with("atoll-trainer train: ranks: 100000 ")) << said;
}

}  // namespace
}  // namespace atl::dispatch
