#include <gtest/gtest.h>

#include <sstream>

#include "services/dispatch/sites/batch/batch_system.h"

namespace atl::dispatch {
namespace {

std::vector<BatchJobRef> names(const std::vector<std::string>& wanted) {
    std::vector<BatchJobRef> jobs;
    for (const auto& name : wanted) jobs.push_back({name, "/work/" + name});
    return jobs;
}

const BatchSpec kSlurmSpec = {BatchKind::kSlurm,
                              1,
                              {{"gpu",
                                {.partition = "boost",
                                 .account = "EUHPC_1",
                                 .qos = "normal",
                                 .constraint = "a100",
                                 .reservation = "r1",
                                 .gpu_request = "--gres=gpu:{gpus}",
                                 .extra = {"--exclusive"}}},
                               {"cpu", {}}},
                              "cpu"};

TEST(SlurmBatchTest, TheHeaderAsksForWhatIsSaidAndNoMore) {
    const auto slurm = make_slurm_batch(kSlurmSpec);
    EXPECT_EQ(slurm->script({"atoll-t-1", "/work"}, {}, "exit 0\n"), R"(#!/bin/sh
#SBATCH --job-name=atoll-t-1
#SBATCH --output=batch.log
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --ntasks=1
exit 0
)");
    const Resources resources{.queue = "gpu",
                              .nodes = 2,
                              .tasks_per_node = 4,
                              .cores_per_task = 8,
                              .gpus_per_node = 4,
                              .memory_mib = 491520,
                              .time_s = 7200};
    EXPECT_EQ(slurm->script({"atoll-t-1", "/work"}, resources, "exit 0\n"), R"(#!/bin/sh
#SBATCH --job-name=atoll-t-1
#SBATCH --output=batch.log
#SBATCH --partition=boost
#SBATCH --account=EUHPC_1
#SBATCH --qos=normal
#SBATCH --constraint=a100
#SBATCH --reservation=r1
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --mem=491520M
#SBATCH --time=2:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --exclusive
exit 0
)");
}

TEST(SlurmBatchTest, GpusAreAskedForByTheNodeUnlessTheQueueSaysAnotherWay) {
    const std::string script =
        make_slurm_batch(kSlurmSpec)
            ->script({"atoll-t-1", "/work"}, {.queue = "cpu", .nodes = 2, .tasks_per_node = 4, .gpus_per_node = 4}, "");
    EXPECT_NE(script.find("\n#SBATCH --gpus-per-node=4\n"), std::string::npos) << script;
    EXPECT_EQ(script.find("--gres"), std::string::npos) << script;
}

TEST(SlurmBatchTest, ASitesOwnScriptStandsAroundTheJob) {
    BatchSpec spec = kSlurmSpec;
    spec.script_template =
        "#!/bin/bash -l\n#SBATCH --mail-type=NONE\n\n# its modules\nset -eu\nmodule load openmpi\n  {{ command }}\n";
    EXPECT_EQ(make_slurm_batch(spec)->script({"atoll-t-1", "/work"}, {}, "exit 0\n"), R"(#!/bin/bash -l
#SBATCH --mail-type=NONE

# its modules
#SBATCH --job-name=atoll-t-1
#SBATCH --output=batch.log
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --ntasks=1
set -eu
module load openmpi
set +eu
exit 0
)");
    spec.script_template = "#!/bin/sh\n{{ command }}";
    EXPECT_EQ(make_slurm_batch(spec)->script({"atoll-t-1", "/work"}, {}, "exit 0\n"),
              "#!/bin/sh\n#SBATCH --job-name=atoll-t-1\n#SBATCH --output=batch.log\n#SBATCH --nodes=1\n"
              "#SBATCH --ntasks-per-node=1\n#SBATCH --ntasks=1\nset +eu\nexit 0\n");
}

// As Slurm 22.05 printed it.
TEST(SlurmBatchTest, ATemplatesTimeBeyondTheQueuesIsShortenedToIt) {
    BatchSpec spec = kSlurmSpec;
    spec.script_template = "#!/bin/bash\n#SBATCH --time=99:00:00\n{{ command }}\n";
    const auto times = [&](const Resources& resources) {
        const std::string script = make_slurm_batch(spec)->script({"atoll-t-1", "/work"}, resources, "exit 0\n");
        std::string found;
        std::istringstream lines(script);
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with("#SBATCH") && line.find("--time") != std::string::npos) found += line + "\n";
        return found;
    };
    EXPECT_EQ(times({}), "#SBATCH --time=99:00:00\n") << "no limit is known";
    spec.queues["cpu"].found.time_max_s = 3600;
    EXPECT_EQ(times({}), "#SBATCH --time=1:00:00\n");
    EXPECT_EQ(times({.time_s = 60}), "#SBATCH --time=0:01:00\n");
    spec.queues["cpu"].found.time_max_s = 1000 * 3600;
    EXPECT_EQ(times({}), "#SBATCH --time=99:00:00\n");
}

// `sacctmgr show runawayjobs` lists them: ends that never reached slurmdbd.
TEST(SlurmBatchTest, WhatAccountingTakesForRunningAndSqueueDoesNotKnowHasEnded) {
    for (const char* word : {"RUNNING", "PENDING", "SUSPENDED", "REQUEUED"}) {
        const std::string text = std::string("squeue\nsacct\natoll-a-1|17|") + word + "|0:0\nusers\nend\n";
        const auto answers = make_slurm_batch()->parse(text, names({"atoll-a-1"}));
        ASSERT_TRUE(answers.ok());
        EXPECT_EQ(answers->at(0).state, BatchState::kUnknownToQueue) << word;
    }
}

TEST(SlurmBatchTest, QueuedAndRunningJobsHaveTheirReasons) {
    const auto answers = make_slurm_batch()->parse(
        "squeue\natoll-a-1|206|RUNNING|None\natoll-b-1|207|PENDING|BeginTime\n"
        "atoll-c-1|208|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
        "partitions\nsacct\nend\n",
        names({"atoll-b-1", "atoll-a-1", "atoll-c-1", "atoll-none-1"}));
    ASSERT_TRUE(answers.ok()) << answers.error().message;
    EXPECT_EQ(answers->at(0).state, BatchState::kQueued);
    EXPECT_EQ(answers->at(0).reason, "BeginTime");
    EXPECT_EQ(answers->at(1).state, BatchState::kRunning);
    EXPECT_EQ(answers->at(1).reason, "");
    EXPECT_TRUE(answers->at(2).reason.starts_with("Nodes required"));
    EXPECT_EQ(answers->at(3).state, BatchState::kUnknownToQueue);
}

// Words of squeue(1) and sacct(1). Real clusters show COMPLETED, FAILED, TIMEOUT, NODE_FAIL, PREEMPTED and CANCELLED in
// slurm_cluster_test; OUT_OF_MEMORY (which needs cgroups), DEADLINE, BOOT_FAIL and REVOKED are from the documentation
// alone.
TEST(SlurmBatchTest, EveryEndIsToldApart) {
    const std::vector<std::pair<std::string, BatchEnd>> kWords = {
        {"COMPLETED", BatchEnd::kCompleted},       {"FAILED", BatchEnd::kFailed},
        {"OUT_OF_MEMORY", BatchEnd::kOutOfMemory}, {"TIMEOUT", BatchEnd::kTimeLimit},
        {"DEADLINE", BatchEnd::kTimeLimit},        {"NODE_FAIL", BatchEnd::kNodeFailure},
        {"BOOT_FAIL", BatchEnd::kNodeFailure},     {"PREEMPTED", BatchEnd::kPreempted},
        {"CANCELLED", BatchEnd::kCancelled},       {"CANCELLED by 1003", BatchEnd::kCancelled},
        {"REVOKED", BatchEnd::kCancelled}};
    for (const auto& [word, end] : kWords) {
        const auto answers =
            make_slurm_batch()->parse("squeue\nsacct\natoll-a-1|17|" + word + "|3:0\nend\n", names({"atoll-a-1"}));
        ASSERT_TRUE(answers.ok());
        EXPECT_EQ(answers->at(0).state, BatchState::kEnded) << word;
        EXPECT_EQ(answers->at(0).end, end) << word;
        EXPECT_EQ(answers->at(0).reason, word + ": 3:0");
        const auto fresh =
            make_slurm_batch()->parse("squeue\natoll-a-1|17|" + word + "|None\nsacct\nend\n", names({"atoll-a-1"}));
        EXPECT_EQ(fresh->at(0).end, end) << "without accounting";
        EXPECT_EQ(fresh->at(0).reason, word);
    }
}

TEST(SlurmBatchTest, OfTwoJobsOfOneNameTheOneThatHasNotEndedCounts) {
    const auto answers = make_slurm_batch()->parse(
        "squeue\natoll-a-1|17|COMPLETED|None\natoll-a-1|18|RUNNING|None\natoll-a-1|19|CANCELLED|None\nsacct\n"
        "atoll-a-1|16|FAILED|1:0\nend\n",
        names({"atoll-a-1"}));
    EXPECT_EQ(answers->at(0).state, BatchState::kRunning);
}

// As sinfo of Slurm 22.05 printed it, with a second kind of node.
TEST(SlurmBatchTest, QueuesHaveTheLimitsOfTheirPartitions) {
    BatchSpec spec = kSlurmSpec;
    spec.queues["long"] = {.partition = "long"};
    const auto limits = make_slurm_batch(spec)->parse_limits(
        "sinfo: notice: maintenance on Friday\n"
        "main*|1:00:00|10:00|1-infinite|2|4|4000|up|idle\nboost|1-00:00:00|n/a|1-64|3000|32|494000+|up|mixed\n"
        "boost|1-00:00:00|n/a|1-64|100|112+|247000|up|idle~\n");
    ASSERT_EQ(limits.size(), 3U);
    EXPECT_EQ(*limits.at("cpu"), (QueueLimits{2, 3600, 600, 4, 4000, 2}));
    EXPECT_EQ(*limits.at("gpu"), (QueueLimits{64, 86400, 0, 112, 494000, 3100}));
    EXPECT_EQ(limits.at("long").error().message, "Slurm has no partition \"long\"; it has boost, main");
    EXPECT_EQ(to_text(*limits.at("cpu")),
              "2 nodes of 4 cores and 3.9 GiB, 1:00:00 at most, 0:10:00 where a job says none");
}

TEST(SlurmBatchTest, QueuesSayWhichOfTheirNodesTakeNoJobs) {
    const auto limits =
        make_slurm_batch(kSlurmSpec)
            ->parse_limits(
                "main*|1:00:00|10:00|1-infinite|1|4|4000|up|down*\nmain*|1:00:00|10:00|1-infinite|2|4|4000|up|drained\n"
                "main*|1:00:00|10:00|1-infinite|3|4|4000|up|allocated\nmain*|1:00:00|10:00|1-infinite|1|4|4000|up|idle*"
                "\n"
                "boost|1-00:00:00|n/a|1-64|3|32|494000|down|idle\n");
    EXPECT_EQ(limits.at("cpu")->nodes, 7);
    EXPECT_EQ(limits.at("cpu")->nodes_max, 7);
    EXPECT_EQ(limits.at("cpu")->nodes_away,
              (std::map<std::string, std::int64_t>{{"down and silent", 1}, {"drained", 2}, {"idle and silent", 1}}));
    EXPECT_EQ(limits.at("cpu")->state, "");
    EXPECT_EQ(limits.at("gpu")->state, "down");
}

TEST(SlurmBatchTest, WhoCancelledAJobIsToldByAccounting) {
    const auto reason = [](const std::string& said) {
        const auto answers = make_slurm_batch()->parse(said, names({"atoll-a-1"}));
        EXPECT_EQ(answers->at(0).end, BatchEnd::kCancelled);
        return answers->at(0).reason;
    };
    EXPECT_EQ(reason("squeue\natoll-a-1|17|CANCELLED|None\nsacct\nusers\nend\n"), "CANCELLED");
    EXPECT_EQ(
        reason("squeue\natoll-a-1|17|CANCELLED|None\nsacct\natoll-a-1|17|CANCELLED by 0|0:0\nusers\n0|root\nend\n"),
        "CANCELLED by root");
    EXPECT_EQ(reason("squeue\nsacct\natoll-a-1|17|CANCELLED by 1003|0:0\nusers\nend\n"), "CANCELLED by 1003");
    EXPECT_EQ(reason("squeue\nsacct\natoll-a-1|17|CANCELLED by 1003|0:15\nusers\nend\n"), "CANCELLED by 1003: 0:15");
    const std::string long_word(400'000, 'x');
    EXPECT_LT(reason("squeue\natoll-a-1|17|CANCELLED by " + long_word + "|None\nsacct\nusers\nend\n").size(), 500U);
    EXPECT_LT(reason("squeue\nsacct\natoll-a-1|17|CANCELLED by 7|0:0\nusers\n7|" + long_word + "\nend\n").size(), 500U);
}

TEST(SlurmBatchTest, LinesThatASitesHooksPrintAreNoJobs) {
    const auto answers = make_slurm_batch()->parse(
        "squeue\nproject|p1|has|120 hours "
        "left\natoll-a-1|17|RUNNING|None\natoll-a-1|soon|FAILED|x\nsacct\nusers\nend\n",
        names({"atoll-a-1"}));
    ASSERT_TRUE(answers.ok());
    EXPECT_EQ(answers->at(0).state, BatchState::kRunning);
}

TEST(SlurmBatchTest, AnAnswerThatBreaksOffSaysNothing) {
    EXPECT_EQ(make_slurm_batch()->parse("squeue\natoll-a-1|17|RUNNING|None\n", names({"atoll-a-1"})).error().code,
              ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace atl::dispatch
