#include "services/dispatch/testing/slurm_job_fixture.h"

#include <cstdlib>

#include "shared/base/file.h"

namespace atl::dispatch {

using json::Json;

const char* const kSiteAtoll = R"sh(#!/bin/sh
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
[ "$verb" = push ] || exit 1
digest=$(sha256sum <"$dir/model.safetensors" | cut -d' ' -f1)
attempt=$(pwd) && task=${attempt%/*}
mkdir -p "$here/pushed/$model" "$here/pushed/by/${task##*/}" && cp "$meta" "$here/pushed/$model/$digest"
printf %s "$digest" >"$here/pushed/by/${task##*/}/${attempt##*/}"
printf '{"digest":"%s"}\n' "$digest"
)sh";

namespace {

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

}  // namespace

void SlurmJobTest::SetUp() {
    if (const std::string why = SlurmCluster::why_not(); !why.empty()) GTEST_SKIP() << why;
    DispatchTest::SetUp();
    if (IsSkipped()) return;
    cluster_ = std::make_unique<SlurmCluster>(cluster_options());
    ASSERT_TRUE(write_file_atomic(fake("atoll"), kSiteAtoll, 0755).ok());
    // A copy, as the site's user need not be able to enter the directory of the build.
    ASSERT_TRUE(std::filesystem::copy_file(ATOLL_TRAINER_PROGRAM, trainer_program()));
    ASSERT_TRUE(
        write_file_atomic(fake("atoll-trainer"),
                          "#!/bin/sh\n[ \"$1\" != train ] || echo \"$ATOLL_BATCH_JOB\" >>\"${0%/*}/trainings\"\n"
                          "exec " +
                              trainer_program() + " \"$@\"\n",
                          0755)
            .ok());
    const auto made =
        run_command({"sh", "-c", kMakeModelAndData, "sh", fake("").parent_path().string(), ATOLL_TRAINER_PROGRAM});
    ASSERT_EQ(made->exit_code, 0) << made->err;
    // The site's user works here as well.
    const std::string prepare =
        "chmod 711 \"$1\" && chmod -R a+rwX \"$2\" && mkdir -p \"$3/datasets/it\" && "
        "cp -r \"$2/data\" \"$3/datasets/it/1\" && chmod -R a+rwX \"$3\"";
    const auto prepared = run_command(
        {"sh", "-c", prepare, "sh", directory_.path().string(), fake("").parent_path().string(), cluster_->work_dir()});
    ASSERT_EQ(prepared->exit_code, 0) << prepared->err;
    const Json data = Json::parse(read_file(fake("data/train/data.json")).value());
    catalog_->add_version("it", 1, "leonardo", data.at("seq_len"), data.at("rows"));
    start_service();
    add_slurm_facility();
}

void SlurmLongJobTest::SetUp() {
    if (std::getenv("ATOLL_LONG_TESTS") == nullptr) GTEST_SKIP() << "takes minutes: ./dev test --slurm";
    SlurmJobTest::SetUp();
}

void SlurmJobTest::add_slurm_facility() {
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
        {"environment",
         {{"OMPI_MCA_btl", "self,tcp"},
          {"OMPI_MCA_btl_tcp_if_include", "lo"},
          {"ASAN_OPTIONS", "detect_leaks=0"}}}};  // MPI's own, as in tests/mpirun.sh
    const auto added = post("/v1/facilities", facility);
    ASSERT_EQ(added.status, 201) << added.body;
}

}  // namespace atl::dispatch
