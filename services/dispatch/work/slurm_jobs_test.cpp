#include "services/dispatch/testing/dispatch_fixture.h"
#include "tests/slurm/slurm_cluster.h"

namespace atl::dispatch {
namespace {

using json::Json;

// atoll of the site, with a model that the trainer can read; see FakeCatalog for what it leaves behind.
constexpr const char* kSiteAtoll = R"sh(#!/bin/sh
here=$(dirname "$0")
verb=$1
while [ $# -gt 0 ]; do
    case $1 in --out) out=$2 ;; --dir) dir=$2 ;; --model) model=$2 ;; --meta) meta=$2 ;; esac
    shift
done
if [ "$verb" = stage ]; then
    cp -r "$here/model" "$out.partial" && mv -T "$out.partial" "$out"
    exit
fi
digest=$(sha256sum <"$dir/model.safetensors" | cut -d' ' -f1)
attempt=$(pwd) && task=${attempt%/*}
mkdir -p "$here/pushed/$model" "$here/pushed/by/${task##*/}" && cp "$meta" "$here/pushed/$model/$digest"
printf %s "$digest" >"$here/pushed/by/${task##*/}/${attempt##*/}"
printf '{"digest":"%s"}\n' "$digest"
)sh";

// Made once by the real trainer: a tiny model and what it trains on.
constexpr const char* kMakeModelAndData = R"sh(set -e
cd "$1"
i=0
while [ $i -lt 400 ]; do
    echo "{\"text\": \"the boat number $i sails to island $((i * 7 % 90)) with $((i % 11)) lamps and $((i % 5)) cats\"}"
    i=$((i + 1))
done >text.jsonl
"$2" tokenizer-train --input text.jsonl --vocab-size 300 --out tokenizer
echo '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":32,"intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,"vocab_size":300,"max_position_embeddings":128,
"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":false,"hidden_act":"silu"}' >config.json
"$2" init --config config.json --tokenizer tokenizer --out model --seed 1
for split in train validation; do
    "$2" tokenize --tokenizer tokenizer --input text.jsonl --template '{{text}}' --out "data/$split" --seq-len 128 \
        --batching packing --split $split --validation-percent 10
done
)sh";

// Jobs at "leonardo", which has a real Slurm cluster of two nodes behind a real ssh, and the real trainer.
class SlurmJobTest : public DispatchTest {
  protected:
    void SetUp() override {
        if (const std::string why = SlurmCluster::why_not(); !why.empty()) GTEST_SKIP() << why;
        DispatchTest::SetUp();
        if (IsSkipped()) return;
        cluster_ = std::make_unique<SlurmCluster>(std::vector<std::string>{"--nodes", "2"});
        ASSERT_TRUE(write_file_atomic(fake("atoll"), kSiteAtoll, 0755).ok());
        ASSERT_TRUE(
            write_file_atomic(fake("atoll-trainer"), "#!/bin/sh\nexec " ATOLL_TRAINER_PROGRAM " \"$@\"\n", 0755).ok());
        const auto made =
            run_command({"sh", "-c", kMakeModelAndData, "sh", fake("").parent_path().string(), ATOLL_TRAINER_PROGRAM});
        ASSERT_EQ(made->exit_code, 0) << made->err;
        // The site's user works here as well.
        const std::string prepare =
            "chmod 711 \"$1\" && chmod -R a+rwX \"$2\" && mkdir -p \"$3/datasets/it\" && "
            "cp -r \"$2/data\" \"$3/datasets/it/1\" && chmod -R a+rwX \"$3\"";
        const auto prepared = run_command({"sh", "-c", prepare, "sh", directory_.path().string(),
                                           fake("").parent_path().string(), cluster_->work_dir()});
        ASSERT_EQ(prepared->exit_code, 0) << prepared->err;
        start_service();
        add_slurm_facility();
    }
    void TearDown() override {
        DispatchTest::TearDown();
        if (cluster_ == nullptr) return;
        (void)run_command({"ssh", "-F", cluster_->ssh_config(), "-o",
                           "ControlPath=" + (directory_.path() / "ssh").string() + "/%C", "-O", "exit",
                           cluster_->name()});
    }

    void add_slurm_facility() {
        const Json facility = {
            {"name", "leonardo"},
            {"transport", {{"kind", "ssh"}, {"host", cluster_->name()}, {"config_file", cluster_->ssh_config()}}},
            {"batch",
             {{"kind", "slurm"},
              {"queues", {{"main", {{"partition", "main"}}}, {"short", {{"partition", "short"}}}}},
              {"default_queue", "main"},
              {"template", "#!/bin/bash -l\nset -eu\necho the modules of the site\n{{ command }}\n"}}},
            {"work_dir", cluster_->work_dir()},
            {"programs", fake("").parent_path().string()},
            {"evaluation", {{"queue", "short"}, {"time", "0:05:00"}}},
            {"environment", {{"OMPI_MCA_btl", "self,tcp"}, {"OMPI_MCA_btl_tcp_if_include", "lo"}}}};
        const auto added = post("/v1/facilities", facility);
        ASSERT_EQ(added.status, 201) << added.body;
    }
    Json job_on_two_nodes(std::int64_t steps) const {
        Json request = job_request(1);
        request["participants"] = {{{"facility", "leonardo"},
                                    {"dataset", "it"},
                                    {"resources", {{"nodes", 2}, {"tasks_per_node", 1}, {"time", "0:30:00"}}}}};
        request["training"] = {{"steps", steps}, {"batch_size", 2}, {"lr", 0.01}};
        return request;
    }
    // The newest training.
    Json training(const std::string& job) {
        const Json rounds = get("/v1/jobs/" + job + "/rounds");
        for (const Json& round : rounds.at("items"))
            for (const Json& task : round.at("tasks"))
                if (task.at("kind") == "train") return task;
        return {{"step", ""}, {"id", ""}};
    }
    bool is_at(const std::string& job, const std::string& step) {
        return eventually([&] { return training(job).value("step", "") == step; });
    }
    // Of an attempt of the newest training.
    std::string file(const std::string& job, int attempt, const std::string& name) {
        const auto text = read_file(std::filesystem::path(cluster_->work_dir()) / "tasks" /
                                    training(job).at("id").get<std::string>() / std::to_string(attempt) / name);
        return text.ok() ? *text : "";
    }
    std::string errors(const std::string& job) {
        return error_of(job) + "\n" + training(job).dump() + "\n" + file(job, 1, "stderr.log") +
               file(job, 1, "batch.log");
    }
    // The steps that an attempt of the newest training has printed.
    std::vector<std::int64_t> steps(const std::string& job, int attempt) {
        std::vector<std::int64_t> numbers;
        std::istringstream lines(file(job, attempt, "stdout.jsonl"));
        for (std::string line; std::getline(lines, line);)
            if (const auto step = json::parse(line); step.ok() && step->contains("step"))
                numbers.push_back(step->at("step"));
        return numbers;
    }
    // Waits until an attempt has begun where the one before it has left off.
    void expect_it_goes_on(const std::string& job, int attempt) {
        ASSERT_TRUE(eventually([&] { return !steps(job, attempt).empty(); })) << errors(job);
        EXPECT_GT(steps(job, attempt).front(), 1);
        EXPECT_LE(steps(job, attempt).front(), steps(job, attempt - 1).back() + 1);
    }

    std::unique_ptr<SlurmCluster> cluster_;
};

TEST_F(SlurmJobTest, TwoNodesTrainTogetherAndOneProcessEvaluates) {
    const std::string job = submit(job_on_two_nodes(3));
    EXPECT_TRUE(reaches(job, "completed")) << errors(job);
    const Json task = training(job);
    EXPECT_EQ(task.at("samples"), 3 * 2 * 2) << "steps, rows a rank, ranks";
    EXPECT_EQ(task.at("attempt"), 1);
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

TEST_F(SlurmJobTest, WhatTheSiteEndsGoesOnFromItsStateAndUsesUpNoAttempt) {
    Json request = job_on_two_nodes(1'000'000);
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    ASSERT_TRUE(eventually([&] { return !training(job).at("id").get<std::string>().empty(); }));
    ASSERT_TRUE(eventually([&] { return !steps(job, 1).empty(); })) << errors(job);
    cluster_->run({"scancel", "--name=atoll-" + training(job).at("id").get<std::string>() + "-1"});
    expect_it_goes_on(job, 2);
    cluster_->run({"scontrol", "update", "nodename=" + cluster_->name() + "-n2", "state=down", "reason=test"});
    expect_it_goes_on(job, 3);  // Slurm takes the node back by itself
    const std::string second = "--name=atoll-" + training(job).at("id").get<std::string>() + "-2";
    EXPECT_EQ(cluster_->run({"squeue", "-h", "-t", "all", second, "-o", "%T"}), "NODE_FAIL\n");
    EXPECT_EQ(state_of(job), "running") << error_of(job);
}

TEST_F(SlurmJobTest, AJobThatWaitsForEverSaysWhy) {
    Json request = job_on_two_nodes(3);
    request["participants"][0]["resources"]["time"] = "2:00:00";  // the partition gives one hour
    const std::string job = submit(request);
    EXPECT_TRUE(eventually([&] { return training(job).value("queue_reason", Json()) == "PartitionTimeLimit"; }))
        << errors(job);
    EXPECT_TRUE(training(job).at("queue_reason_since").is_string());
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
    EXPECT_TRUE(eventually([&] { return cluster_->run({"squeue", "-h", "-t", "pending,running"}).empty(); }));
}

}  // namespace
}  // namespace atl::dispatch
