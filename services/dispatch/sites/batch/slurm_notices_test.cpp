#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/testing/fake_slurm_site.h"

namespace atl::dispatch {
namespace {

// A site whose wrappers of Slurm's programs print on standard output what they have to say, as some do.
class SlurmNoticesTest : public testing::Test {
  protected:
    SlurmNoticesTest() {
        for (const char* program : {"sbatch", "scancel", "sacct", "scontrol", "sinfo"}) answer(program, "");
        queue_has("", "");
    }

    // The program's answer among notices.
    void answer(const std::string& program, const std::string& said) {
        slurm_.put("bin/" + program,
                   "#!/bin/sh\n"
                   "[ \"$1\" != --version ] || { echo slurm 22.05.8; exit; }\n"
                   "echo " +
                       program + " >>" + slurm_.path("called") +
                       "\n"
                       "cat <<'TEXT'\n"
                       "Maintenance on 1 December: 12 nodes of Arch=sparc Partitions=main leave\n"
                       "project|p1|has|120 hours left\n" +
                       said + "\n 3 of your jobs wait\nTEXT\n");
    }
    // squeue's answer to the question for ids, and to that for states.
    void queue_has(const std::string& id, const std::string& state) {
        answer("squeue", "JOBID\n" + id + "\nNAME|JOBID|STATE|REASON\n" + state);
    }
    std::int64_t calls(const std::string& program) const {
        std::ifstream called(slurm_.path("called"));
        return std::count(std::istream_iterator<std::string>(called), {}, program);
    }
    BatchJobRef job() { return {"atoll-t-1", site_.task_directory("t", 1)}; }

    FakeSlurmSite slurm_;
    ScriptSite site_{slurm_.facility, make_local_transport(), ""};
};

TEST_F(SlurmNoticesTest, AJobIsSubmittedOnceAndKnownByItsId) {
    answer("sbatch", "4711;cluster");
    const auto id = site_.submit_script(job(), "exit 0\n");
    ASSERT_TRUE(id.ok()) << describe(id.error());
    EXPECT_EQ(*id, "4711");
    queue_has("4712", "");
    const auto again = site_.submit_script({"atoll-t-2", site_.task_directory("t", 2)}, "exit 0\n");
    ASSERT_TRUE(again.ok()) << describe(again.error());
    EXPECT_EQ(*again, "4712") << "one that the queue has is found by its name";
    EXPECT_EQ(calls("sbatch"), 1);
}

TEST_F(SlurmNoticesTest, OfSeveralNumbersTheIdIsTheOneInTheQueue) {
    answer("sbatch", "4711;cluster\n   31337");  // hours that are left
    slurm_.put("bin/squeue", "#!/bin/sh\necho JOBID\n! grep -q sbatch " + slurm_.path("called") + " || echo 4711\n");
    const auto id = site_.submit_script(job(), "exit 0\n");
    ASSERT_TRUE(id.ok()) << describe(id.error());
    EXPECT_EQ(*id, "4711");
}

TEST_F(SlurmNoticesTest, TheQueueAndAccountingAreReadAsTheyAre) {
    queue_has("", "atoll-t-1|17|RUNNING|None");
    answer("sacct", "atoll-t-2|18|FAILED|3:0");
    const auto answers = site_.ask_batch(
        {job(), {"atoll-t-2", site_.task_directory("t", 2)}, {"atoll-t-3", site_.task_directory("t", 3)}});
    ASSERT_TRUE(answers.ok()) << describe(answers.error());
    EXPECT_EQ(answers->at(0).state, BatchState::kRunning);
    EXPECT_EQ(answers->at(1).reason, "FAILED: 3:0");
    EXPECT_EQ(answers->at(2).state, BatchState::kUnknownToQueue);
}

TEST_F(SlurmNoticesTest, ACancelledJobIsGoneOnceTheQueueHasNoIdOfIt) {
    EXPECT_TRUE(site_.cancel(job()).ok());
    queue_has("17", "");
    EXPECT_NE(describe(site_.cancel(job()).error()).find("still ends the job: 17"), std::string::npos);
}

// Of a wrapper that leaves the header out.
TEST_F(SlurmNoticesTest, OfOneJobWordsAloneSayThatTheQueueHasNoSuchJob) {
    const auto say = [&](const std::string& text) {
        slurm_.put("bin/squeue", "#!/bin/sh\ncat <<'TEXT'\n" + text + "\nTEXT\n");
    };
    answer("sbatch", "4711");
    say("squeue: notice: maintenance on Friday");
    const auto id = site_.submit_script(job(), "exit 0\n");
    ASSERT_TRUE(id.ok()) << describe(id.error());
    EXPECT_EQ(*id, "4711");
    EXPECT_TRUE(site_.cancel(job()).ok());
    EXPECT_FALSE(site_.ask_batch({job()}).ok()) << "a running job must not be taken for one that has ended";
    for (const char* other : {"", " 254 main atoll-t R 1:02", "atoll-t- 254 R", "             JOBID PARTITION",
                              "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
                              "squeue is not available during maintenance", "Friday: maintenance\n254"}) {
        say(other);
        EXPECT_FALSE(site_.submit_script({"atoll-t-2", site_.task_directory("t", 2)}, "exit 0\n").ok()) << other;
        EXPECT_FALSE(site_.cancel(job()).ok()) << other;
    }
    EXPECT_EQ(calls("sbatch"), 1);
}

TEST_F(SlurmNoticesTest, ACheckSeesTheSamePartitionsAndMachines) {
    FakeSlurmSite quiet;
    answer("sinfo", "main*|1:00:00|10:00|1-infinite|4|4|4000|up|idle");
    std::string machine = run_command({"uname", "-m"})->out;
    answer("scontrol", "NodeName=n1 Arch=" + machine.substr(0, machine.find('\n')) + " Partitions=main");
    ScriptSite sound(quiet.facility, make_local_transport(), "");
    const auto found = findings(sound.check({quiet.store_url}).rows, site_.check({slurm_.store_url}).rows);
    EXPECT_EQ(found, std::vector<std::string>{});
}

}  // namespace
}  // namespace atl::dispatch
