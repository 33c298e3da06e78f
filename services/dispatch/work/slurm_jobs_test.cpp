#include <csignal>
#include <cstdlib>

#include "services/dispatch/testing/slurm_job_fixture.h"
#include "services/dispatch/testing/test_dispatch.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using json::Json;

TEST_F(SlurmJobTest, TwoNodesTrainTogetherAndOneProcessEvaluates) {
    const std::string job = submit(job_on_two_nodes(3));
    EXPECT_TRUE(completes(job)) << errors(job);
    const Json task = training(job);
    EXPECT_EQ(task.at("samples"), 3 * 2 * 2) << "steps, rows a rank, ranks";
    EXPECT_EQ(task.at("attempt"), 1) << errors(job);
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    ASSERT_EQ(rounds.size(), 2U);
    EXPECT_GT(rounds[1].at("evaluations").at(0).at("perplexity"), 1);
    EXPECT_NE(file(job, 1, "job.sh").find("\n#SBATCH --nodes=2\n"), std::string::npos);
    EXPECT_EQ(file(job, 1, "batch.log"), "the modules of the site\n");
    const std::string done = cluster_->run({"squeue", "-h", "-t", "all", "-o", "%P %D %T"});
    EXPECT_EQ(done.find("main 2 COMPLETED") != std::string::npos && done.find("short 1 COMPLETED") != std::string::npos,
              true)
        << done;
}

// Nothing of ours is at the site but the image, in which a stand-in for `atoll` is bound over the real one.
TEST_F(SlurmLongJobTest, AJobRunsInTheRealImage) {
    const std::string user = "atoll-" + cluster_->name();
    const std::string image = cluster_->path("scratch/trainer.sif");
    if (const std::string why = run_command({ATOLL_IMAGE_SCRIPT, "why-not", user})->out; !why.empty())
        GTEST_SKIP() << why;
    CommandOptions options;
    options.timeout = std::chrono::minutes(15);
    const std::string programs = std::filesystem::path(ATOLL_TRAINER_PROGRAM).parent_path();
    const auto built = run_command({ATOLL_IMAGE_SCRIPT, "build", user, programs, image}, options);
    ASSERT_TRUE(built.ok() && built->exit_code == 0) << built->out << built->err;
    const std::string here = fake("").parent_path();
    std::string atoll = kSiteAtoll;
    atoll.replace(atoll.find("here=$(dirname \"$0\")"), 20, "here='" + here + "'");
    ASSERT_TRUE(write_file_atomic(fake("atoll-in-image"), atoll, 0755).ok());
    Json patch = {{"programs", nullptr}, {"environment", {{"OMPI_MCA_btl", "self,vader"}}}};
    patch["image"] = {{"path", image},
                      {"sha256", std::string(64, '0')},
                      {"binds", {here, fake("atoll-in-image").string() + ":/opt/atoll/bin/atoll"}}};
    const auto set = [&] {
        return client()
            .call(http::Method::kPatch, "/v1/facilities/leonardo", patch.dump(), {{{"If-Match", "*"}}, {}})
            ->status;
    };
    ASSERT_EQ(set(), 200);
    Json request = job_on_two_nodes(3);
    request["participants"][0]["resources"] = {{"nodes", 1}, {"tasks_per_node", 2}, {"time", "0:30:00"}};
    ASSERT_TRUE(run_command({"touch", "-d", "1 hour ago", image}).ok());  // nobody copies it any more
    const std::string refused = submit(request);
    EXPECT_TRUE(within_minutes([&] { return state_of(refused) == "failed"; })) << errors(refused);
    EXPECT_NE(error_of(refused).find(std::string(64, '0')), std::string::npos) << error_of(refused);
    EXPECT_EQ(file(refused, 1, "stdout.jsonl") + file(refused, 2, "jobid"), "");
    patch["image"]["sha256"] = run_command({"sha256sum", image})->out.substr(0, 64);
    ASSERT_EQ(set(), 200);
    const std::string job = submit(request);
    EXPECT_TRUE(completes(job)) << errors(job);
    EXPECT_EQ(training(job).at("samples"), 3 * 2 * 2) << "steps, rows a rank, ranks";
    EXPECT_GT(get("/v1/jobs/" + job + "/rounds").at("items").at(1).at("evaluations").at(0).at("perplexity"), 1);
    EXPECT_NE(file(job, 1, "job.sh").find("srun --mpi=pmix --kill-on-bad-exit=1 sh image.sh 'atoll-trainer'"),
              std::string::npos);
}

TEST_F(SlurmLongJobTest, WhatTheSiteEndsGoesOnFromItsStateAndUsesUpNoAttempt) {
    Json request = job_on_two_nodes(1'000'000);
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(eventually([&] { return !training(job).at("id").get<std::string>().empty(); }));
    ASSERT_TRUE(within_minutes([&] { return !steps(job, 1).empty(); })) << errors(job);
    cluster_->run({"scancel", "--name=atoll-" + training(job).at("id").get<std::string>() + "-1"});
    expect_it_goes_on(job, 2);
    EXPECT_NE(why_ended(job, 1).find("its batch job was cancelled"), std::string::npos) << why_ended(job, 1);
    cluster_->run({"scontrol", "update", "nodename=" + cluster_->name() + "-n2", "state=down", "reason=test"});
    expect_it_goes_on(job, 3);  // Slurm takes the node back by itself
    EXPECT_EQ(cluster_->run({"squeue", "-h", "-t", "all", "--name=" + name(job, 2), "-o", "%T"}), "NODE_FAIL\n");
    EXPECT_NE(why_ended(job, 2).find("a node of its batch job failed (NODE_FAIL"), std::string::npos)
        << why_ended(job, 2);
    cluster_->run({"sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--chdir=/",
                   "--wrap=sleep 1"});
    expect_it_goes_on(job, 4);
    EXPECT_EQ(cluster_->run({"squeue", "-h", "-t", "all", "--name=" + name(job, 3), "-o", "%T"}), "PREEMPTED\n");
    EXPECT_NE(why_ended(job, 3).find("was preempted by another one (PREEMPTED"), std::string::npos)
        << why_ended(job, 3);
    EXPECT_EQ(state_of(job), "running") << error_of(job);
}

// A trainer that is told to end saves and ends with 0: that somebody cancelled its job Slurm alone knows.
TEST_F(SlurmJobTest, ACancelledBatchJobIsCalledCancelledEachTimeAndNotTooShort) {
    Json request = job_on_one_node(1'000'000, {{"batch_size", 2}});
    const std::string job = submit(request);
    for (int attempt = 1; state_of(job) == "running" && attempt <= 5; ++attempt) {
        ASSERT_TRUE(within_minutes([&] { return is_started(job, attempt); })) << errors(job);
        cluster_->run({"scancel", "--name=" + name(job, attempt)});
        ASSERT_TRUE(within_minutes([&] { return why_ended(job, attempt) != ""; })) << errors(job);
        EXPECT_NE(why_ended(job, attempt).find("its batch job was cancelled"), std::string::npos)
            << why_ended(job, attempt);
    }
    EXPECT_EQ(error_of(job).find("raise `time`"), std::string::npos) << error_of(job);
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status / 100, state_of(job) == "failed" ? 4 : 2);
}

TEST_F(SlurmJobTest, ATemplateThatFailsShowsTheEndOfItsLog) {
    Json patch = {{"batch",
                   {{"kind", "slurm"},
                    {"queues", {{"main", {{"partition", "main"}}}, {"short", {{"partition", "short"}}}}},
                    {"default_queue", "main"},
                    {"template", "#!/bin/bash\nset -e\nmodule load openmpi/nowhere\n{{ command }}\n"}}}};
    const auto set =
        client().call(http::Method::kPatch, "/v1/facilities/leonardo", patch.dump(), {{{"If-Match", "*"}}, {}});
    ASSERT_EQ(set->status, 200) << set->body;
    const std::string job = submit(job_on_one_node(10, Json::object()));
    EXPECT_TRUE(within_minutes([&] {
        return why_ended(job, 1).find("module: command not found") != std::string::npos;
    })) << errors(job);
    EXPECT_NE(why_ended(job, 1).find("NonZeroExitCode"), std::string::npos) << why_ended(job, 1);
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
}

// A template as LUMI's in xFFL: dispatch's nodes, tasks, time and files replace those that it says.
constexpr const char* kStreamFlowTemplate = R"(#!/bin/bash
#SBATCH --job-name=federation
#SBATCH --output=federation
#SBATCH --error=federation
#SBATCH --time=00:01:00
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --tasks-per-node=1		# a GPU each
#SBATCH --partition=short
#SBATCH --mem=0
#SBATCH --exclusive

{{ streamflow_environment }}
cd "{{ streamflow_workdir }}"
export CACHE="/tmp/$(whoami)-cache-$SLURM_NODEID"
if [ "$SLURM_LOCALID" -eq 0 ]; then
    rm -rf "$CACHE"
fi
echo "$OMPI_MCA_btl in $PWD, $SLURM_NNODES nodes, $SLURM_NTASKS tasks"
srun bash -c "{{ streamflow_command }}" 2>&1
)";

TEST_F(SlurmJobTest, ATemplateOfStreamFlowTrainsOnAllNodesThatTheJobAskedFor) {
    const Json patch = {{"batch",
                         {{"kind", "slurm"},
                          {"queues", {{"main", {{"partition", "main"}}}, {"short", {{"partition", "short"}}}}},
                          {"default_queue", "main"},
                          {"template", kStreamFlowTemplate}}}};
    const auto set =
        client().call(http::Method::kPatch, "/v1/facilities/leonardo", patch.dump(), {{{"If-Match", "*"}}, {}});
    ASSERT_EQ(set->status, 200) << set->body;
    const Json replaced = get("/v1/facilities/leonardo").at("template_replaces");
    EXPECT_EQ(replaced.size(), 8U) << replaced;
    EXPECT_EQ(replaced.back(), "srun bash -c \"{{ streamflow_command }}\" 2>&1");
    Json request = job_on_two_nodes(3);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(completes(job)) << errors(job);
    EXPECT_EQ(training(job).at("samples"), 3 * 2 * 2) << "steps, rows a rank, ranks";
    EXPECT_EQ(training(job).at("attempt"), 1);
    EXPECT_EQ(file(job, 1, "batch.log"), "self,tcp in " + cluster_->work_dir() + "/tasks/" +
                                             training(job).at("id").get<std::string>() + "/1, 2 nodes, 2 tasks\n");
    EXPECT_EQ(cluster_->run({"squeue", "-h", "-t", "all", "-o", "%j %P %D %C %l"}), name(job, 1) + " main 2 8 30:00\n");
}

TEST_F(SlurmJobTest, AJobBeyondTheLimitsThatACheckHasFoundIsRefused) {
    EXPECT_EQ(post("/v1/facilities/leonardo/check", Json::object()).status, 200);
    EXPECT_EQ(get("/v1/facilities/leonardo").at("limits").at("short").at("time_max_s"), 300);
    Json request = job_on_two_nodes(3);
    request["participants"][0]["resources"]["time"] = "2:00:00";
    const auto refused = post("/v1/jobs", request);
    EXPECT_EQ(refused.status, 422);
    EXPECT_NE(refused.body.find("the queue main gives 1:00:00 at most"), std::string::npos) << refused.body;
}

// With ATOLL_WALL_S it is Slurm that ends the jobs, after so many seconds each, of a training three times as long.
// Without, the trainer's own limit is shorter than Slurm's shortest, a minute. `./dev test --slurm` does both.
TEST_F(SlurmLongJobTest, ATrainingThatOutlivesItsBatchJobsWaitsInTheQueueOnce) {
    const char* given = std::getenv("ATOLL_WALL_S");
    const int wall_s = given == nullptr ? 0 : std::atoi(given);
    constexpr int kLimitS = 15;
    constexpr std::int64_t kSteps = 240;
    auto [whole, whole_s] = undisturbed(kSteps);
    ASSERT_GT(whole_s, 0);
    // Long enough to be held before it is done, however fast the machine is.
    const double time_s = wall_s > 0 ? 3.0 * wall_s : std::max(20.0, whole_s);
    const auto steps_max = static_cast<std::int64_t>(static_cast<double>(kSteps) * time_s / whole_s);
    if (steps_max != kSteps) whole = undisturbed(steps_max).first;
    const Json limit = wall_s > 0 ? Json::object() : Json{{"time_limit", kLimitS}};
    stop_service();
    // Every fifth step is forgotten, as if dispatch had been killed there. The service ends after this test's body.
    const auto steps_done = std::make_shared<std::atomic<int>>(0);
    start_service({.lose_result = [steps_done](const Task&) { return ++*steps_done % 5 == 0; }});
    Json request = job_on_one_node(steps_max, limit);
    if (wall_s > 0) request["participants"][0]["resources"]["time"] = "0:00:" + std::to_string(wall_s);
    const std::string job = submit(request);
    // Whatever pace this machine has now, the first two do not get to the end in their time.
    for (int attempt = 1; attempt <= 2; ++attempt)
        ASSERT_NO_FATAL_FAILURE(hold_until_continued(job, attempt, wall_s > 0 ? wall_s / 2 : kLimitS));
    ASSERT_TRUE(completes(job)) << errors(job);
    const std::int64_t last = training(job).at("attempt");
    EXPECT_GE(last, 3);
    EXPECT_EQ(training(job).at("version"), whole) << "bit for bit";
    for (const int attempt : {2, 3}) {
        ASSERT_TRUE(within_minutes([&] { return completions(job).contains(name(job, attempt)); }));
        const auto found = completions(job);
        EXPECT_LE(found.at(name(job, attempt)).at("SubmitTime"), found.at(name(job, attempt - 1)).at("EndTime"));
    }
    EXPECT_TRUE(within_minutes([&] { return cluster_->run({"squeue", "-h", "-t", "pending,running"}).empty(); }));
    EXPECT_NE(file(job, 2, "job.sh").find("--dependency=afterany:"), std::string::npos);
}

TEST_F(SlurmLongJobTest, AContinuationThatIsNotNeededNeverTrains) {
    const std::string job = submit(job_on_one_node(300, {{"time_limit", 240}}));
    ASSERT_TRUE(within_minutes([&] { return steps(job, 1).size() > 20; })) << errors(job);
    EXPECT_EQ(post("/v1/jobs/" + job + "/pause", Json::object()).status, 200);
    signal_trainer(SIGSTOP);
    // Each step raises the fence when it begins and when it ends: one may have been under way, then a whole one
    // follows.
    const auto fence = [&] {
        return connect()
            .query("SELECT max(fence) AS n FROM tasks WHERE job_id = $1 AND kind = 'train'", {job})
            ->integer(0, "n");
    };
    const std::int64_t before = fence();
    ASSERT_TRUE(within_minutes([&] { return fence() >= before + 3; }));
    EXPECT_EQ(file(job, 2, "jobid"), "") << "a paused job begins nothing new";
    EXPECT_EQ(post("/v1/jobs/" + job + "/resume", Json::object()).status, 200);
    ASSERT_TRUE(within_minutes([&] { return !file(job, 2, "jobid").empty(); })) << errors(job);
    signal_trainer(SIGCONT);
    ASSERT_TRUE(completes(job)) << errors(job);
    EXPECT_EQ(training(job).at("attempt"), 1);
    EXPECT_TRUE(within_minutes([&] { return cluster_->run({"squeue", "-h", "-t", "pending,running"}).empty(); }));
    EXPECT_TRUE(eventually([&] { return completions(job).size() == 2; }));
    EXPECT_TRUE(steps(job, 2).empty());
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(cluster_->work_dir()) / "tasks" /
                                         training(job).at("id").get<std::string>() / "2" / "started"));
}

TEST_F(SlurmJobTest, AKilledTrainerGoesOnFromWhatItHasSaved) {
    Json request = job_on_one_node(300, {{"save_every", 10}});
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(within_minutes([&] { return steps(job, 1).size() >= 12; })) << errors(job);
    // Not while it saves: it has printed the step before.
    std::int64_t last = 0;
    ASSERT_TRUE(within_minutes([&] {
        signal_trainer(SIGSTOP);
        last = steps(job, 1).back();
        if (last % 10 == 0) signal_trainer(SIGCONT);
        return last % 10 != 0;
    }));
    signal_trainer(SIGKILL);
    ASSERT_TRUE(within_minutes([&] { return !steps(job, 2).empty(); })) << errors(job);
    EXPECT_EQ(steps(job, 2).front(), last / 10 * 10 + 1) << "killed after step " << last;
    EXPECT_TRUE(completes(job)) << errors(job);
}

TEST_F(SlurmJobTest, ARequeuedJobGivesWayToTheNextAttempt) {
    Json request = job_on_one_node(1'000'000, {{"save_every", 10}});
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(within_minutes([&] { return steps(job, 1).size() >= 12; })) << errors(job);
    const std::string id = file(job, 1, "jobid");
    cluster_->run({"scontrol", "update", "jobid=" + id.substr(0, id.find('\n')), "requeue=1"});
    cluster_->run({"scontrol", "requeue", id.substr(0, id.find('\n'))});
    expect_it_goes_on(job, 2);
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
    EXPECT_TRUE(within_minutes([&] { return cluster_->run({"squeue", "-h", "-t", "pending,running"}).empty(); }));
}

// atoll-dispatch itself at the cluster, and everything on the way there killed without warning, again and again.
class SlurmKillTest : public SlurmJobTest {
  protected:
    void SetUp() override {
        SlurmJobTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        stop_service();
        const std::uint16_t port = free_port();
        config_ = config_file(port);
        base_url_ = "http://127.0.0.1:" + std::to_string(port);
        start_program();
    }
    void TearDown() override {
        program_.kill();
        SlurmJobTest::TearDown();
    }
    void start_program() {
        ASSERT_NO_FATAL_FAILURE(program_.start(config_, directory_.path() / "dispatch.log"));
        ASSERT_TRUE(eventually([&] {
            const auto answer = client().call(http::Method::kGet, "/readyz");
            return answer.ok() && answer->status == 200;
        }));
    }
    static void kill_those(const std::vector<std::string>& pgrep) {
        std::istringstream pids(run_command(pgrep)->out);
        for (pid_t pid = 0; pids >> pid;) ::kill(pid, SIGKILL);
    }
    void kill_something(int turn) {
        switch (turn % 3) {
            case 0:
                program_.kill();
                return start_program();
            case 1:
                return kill_those({"pgrep", "-f", "^ssh .*" + cluster_->ssh_config()});
            default:
                return kill_those(
                    {"pgrep", "-P", std::string(trim(read_file(cluster_->path("run/sshd.1.pid")).value()))});
        }
    }

    std::filesystem::path config_;
    TestDispatch program_;
};

// ATOLL_SLURM_TASKS says how many.
TEST_F(SlurmKillTest, EveryTaskIsDoneOnceWhateverIsKilled) {
    const char* given = std::getenv("ATOLL_SLURM_TASKS");
    const int count = given == nullptr ? 6 : std::atoi(given);
    std::vector<std::string> jobs;
    for (int i = 0; i < count; ++i) {
        Json request = job_on_one_node(40, {{"batch_size", 2}});
        request["name"] = "job-" + std::to_string(i);
        jobs.push_back(submit(request));
    }
    const auto done = [&] {
        return std::count_if(jobs.begin(), jobs.end(), [&](const auto& job) { return state_of(job) == "completed"; });
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(20);
    int controllers = 0;
    for (int turn = 0; done() < count; ++turn) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << done() << " of " << count;
        kill_something(turn);
        if (controllers < 2 && done() * 3 >= count * controllers) {
            ++controllers;
            cluster_->kill("slurmctld");
            cluster_->run({"/usr/sbin/slurmctld", "-i"});
            ASSERT_TRUE(eventually([&] { return !cluster_->run({"sinfo", "-h"}).empty(); }));
            // Its state is some seconds old: it takes jobs that have ended since for running ones, until their nodes
            // say otherwise, which by themselves they do after minutes.
            cluster_->run({"scontrol", "reconfigure"});
        }
        // A controller that was killed gives a job's number again, and drains the node where that job still runs.
        // Of one that is not drained that is refused.
        const std::string resume = "for node in n1 n2; do scontrol update nodename=" + cluster_->name() +
                                   "-$node state=resume; done 2>/dev/null || :";
        cluster_->run({"sh", "-c", resume});
        for (int waits = 0; waits < 10 && done() < count; ++waits)
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    // The submissions of each name. One may be told several times: the state of a controller that was killed is some
    // seconds old, so that a job which had ended meanwhile is told once more, as NODE_FAIL, and one which had started
    // starts again, with its number and its submission's time; its node refuses that, or the job's claim does.
    std::map<std::string, std::map<std::string, std::string>> submitted;
    std::istringstream log(read_file(cluster_->path("log/jobcomp.txt")).value());
    for (std::string line; std::getline(log, line);) {
        auto words = words_of(line);
        submitted[words["Name"]][words["JobId"] + " " + words["SubmitTime"]] += line + "\n";
    }
    std::map<std::string, int> trainings;
    std::istringstream trained(read_file(fake("trainings")).value());
    for (std::string name; std::getline(trained, name);) ++trainings[name];
    for (const auto& [name, times] : trainings) EXPECT_EQ(times, 1) << name;
    for (const std::string& job : jobs) {
        const std::string task = training(job).at("id");
        const std::filesystem::directory_iterator updates(fake("pushed/by") / task);
        EXPECT_EQ(std::distance(updates, {}), 1) << "updates of " << task;
        for (std::int64_t attempt = 1; attempt <= training(job).at("attempt"); ++attempt) {
            const std::string again = file(job, static_cast<int>(attempt), "again");
            const auto& submissions = submitted["atoll-" + task + "-" + std::to_string(attempt)];
            std::string lines;
            for (const auto& [submission, told] : submissions) lines += told;
            EXPECT_LE(submissions.size(), 1 + std::count(again.begin(), again.end(), '\n'))
                << "each but one gives way at once:\n"
                << lines << again;
        }
    }
}

TEST_F(SlurmJobTest, AJobThatWaitsForEverSaysWhy) {
    Json request = job_on_two_nodes(3);
    request["participants"][0]["resources"]["time"] = "2:00:00";  // the partition gives one hour
    const std::string job = submit(request);
    const auto reason = [&] { return training(job).value("queue_reason", ""); };
    EXPECT_TRUE(within_minutes([&] { return reason().starts_with("PartitionTimeLimit (batch job "); })) << errors(job);
    // The base's evaluation is a batch job too: either may be the first.
    const std::string id = reason().substr(std::string_view("PartitionTimeLimit (batch job ").size(), 1);
    EXPECT_EQ(reason(), "PartitionTimeLimit (batch job " + id +
                            " asks for more time than its partition gives: `scontrol update JobId=" + id +
                            " TimeLimit=TIME` at the site lowers it)");
    EXPECT_TRUE(training(job).at("queue_reason_since").is_string());
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
    EXPECT_TRUE(within_minutes([&] { return cluster_->run({"squeue", "-h", "-t", "pending,running"}).empty(); }));
}

TEST_F(SlurmJobTest, NodesThatAreDrainedAndAPartitionThatIsDownAreWhatAJobWaitsFor) {
    const std::string nodes = "nodename=" + cluster_->name() + "-n[1-2]";
    cluster_->run({"scontrol", "update", nodes, "state=drain", "reason=test"});
    const std::string job = submit(job_on_two_nodes(3));
    const auto is_said = [&](const std::string& reason) {
        const std::string list = get("/v1/jobs").at("items").at(0).at("waits").dump();
        return training(job).value("queue_reason", Json()).dump().find(reason) != std::string::npos &&
               list.find(reason) != std::string::npos && list.find("\"since\":\"20") != std::string::npos;
    };
    EXPECT_TRUE(within_minutes([&] { return is_said("DRAINED") || is_said("ReqNodeNotAvail"); })) << errors(job);
    cluster_->run({"scontrol", "update", "partitionname=main", "state=down"});
    cluster_->run({"scontrol", "update", nodes, "state=resume"});
    EXPECT_TRUE(within_minutes([&] { return is_said("PartitionDown"); })) << errors(job);
    cluster_->run({"scontrol", "update", "partitionname=main", "state=up"});
    EXPECT_TRUE(completes(job)) << errors(job);
}

}  // namespace
}  // namespace atl::dispatch
