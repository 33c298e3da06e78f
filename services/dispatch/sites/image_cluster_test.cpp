#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "services/dispatch/sites/image_command.h"
#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"
#include "tests/slurm/slurm_cluster.h"

namespace atl::dispatch {
namespace {

// Makes a tiny model and what it trains on, with the image's trainer.
constexpr const char* kMakeTinyModel = R"sh(set -e
i=0
while [ $i -lt 200 ]; do
    echo "{\"text\": \"the boat number $i sails to island $((i * 7 % 90)) with $((i % 11)) lamps and $((i % 5)) cats\"}"
    i=$((i + 1))
done >text.jsonl
atoll-trainer tokenizer-train --input text.jsonl --vocab-size 300 --out tokenizer
echo '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":32,"intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,"vocab_size":300,"max_position_embeddings":128,
"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":false,"hidden_act":"silu"}' >config.json
atoll-trainer init --config config.json --tokenizer tokenizer --out model --seed 1
atoll-trainer tokenize --tokenizer tokenizer --input text.jsonl --template '{{text}}' --out data --seq-len 128 \
    --batching packing --split train --validation-percent 10
)sh";

// The real image, built here by the cluster's user, in jobs of a real Slurm cluster: minutes, so `./dev test --slurm`.
class ImageClusterTest : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        why_not_ = SlurmCluster::why_not();
        if (!why_not_.empty()) return;
        cluster_ = new SlurmCluster({"--nodes", "1"});
        user_ = "atoll-" + cluster_->name();
        image_ = cluster_->path("scratch/trainer.sif");
        why_not_ = run_command({ATOLL_IMAGE_SCRIPT, "why-not", user_})->out;
        if (!why_not_.empty()) return;
        CommandOptions options;
        options.timeout = std::chrono::minutes(15);
        const auto built = run_command({ATOLL_IMAGE_SCRIPT, "build", user_, ATOLL_PROGRAMS, image_}, options);
        ASSERT_TRUE(built.ok()) << built.error().message;
        ASSERT_EQ(built->exit_code, 0) << built->out << built->err;
        std::cout << built->out.substr(built->out.rfind('\n', built->out.size() - 2) + 1);
    }
    static void TearDownTestSuite() {
        delete cluster_;
        cluster_ = nullptr;
    }
    void SetUp() override {
        if (!why_not_.empty()) GTEST_SKIP() << why_not_;
        facility_.name = "cluster";
        facility_.transport = {TransportKind::kSsh, cluster_->name(), cluster_->ssh_config()};
        facility_.batch = {BatchKind::kSlurm, 1, {{"main", {}}}, "main"};
        facility_.work_dir = cluster_->work_dir();
        facility_.environment = {{"OMPI_MCA_btl", "self,vader"}};
        facility_.image = ImageSpec{image_, "", "", "none", {}, {}};
        transport_ = make_ssh_transport("cluster", facility_.transport, {.control_directory = control_.path()});
        ASSERT_TRUE(transport_->run({"mkdir -p \"$1\"", {facility_.work_dir}, {}}).ok());
    }
    void TearDown() override {
        if (transport_ == nullptr) return;
        (void)run_command({"ssh", "-F", cluster_->ssh_config(), "-o", "ControlPath=" + control_.path().string() + "/%C",
                           "-O", "exit", cluster_->name()});
    }

    ScriptSite site() const { return ScriptSite(facility_, transport_, ""); }
    // Runs in a batch job: its directory, with what it printed when it failed. `meanwhile` is called while it runs.
    std::string run(const std::string& name, const std::vector<std::string>& command, std::int64_t ranks = 1,
                    const std::string& launcher = "",
                    const std::function<void(const BatchJobRef&)>& meanwhile = {}) const {
        BatchJob job{.ref = {"atoll-" + name + "-1", site().task_directory(name, 1)},
                     .environment = facility_.environment,
                     .commands = {command},
                     .resources = {.tasks_per_node = ranks},
                     .launcher = launcher,
                     .image_runner = render_image_runner(facility_)};
        const auto id = site().submit(job);
        EXPECT_TRUE(id.ok()) << id.error().message;
        std::optional<std::int64_t> code;
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
        while (!code && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::milliseconds(500));
            if (meanwhile) meanwhile(job.ref);
            const auto looks = site().look({{job.ref.directory, 0}});
            if (looks.ok()) code = looks->at(0).exit_code;
        }
        EXPECT_EQ(code, 0) << name << ": " << site().tail(job.ref.directory + "/stderr.log", 4000).value()
                           << site().tail(job.ref.directory + "/batch.log", 4000).value();
        return job.ref.directory;
    }
    // As the cluster's user.
    CommandResult run_apptainer(const std::vector<std::string>& arguments) const {
        std::vector<std::string> argv = {"setpriv", "--reuid=" + user_, "--regid=" + user_, "--init-groups",
                                         "env",     "HOME=/tmp",        "apptainer",        "--quiet"};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        CommandOptions options;
        options.timeout = std::chrono::minutes(2);
        return run_command(argv, options).value();
    }

    static inline SlurmCluster* cluster_ = nullptr;
    static inline std::string why_not_;
    static inline std::string user_;
    static inline std::string image_;
    TemporaryDirectory control_;
    Facility facility_;
    std::shared_ptr<Transport> transport_;
};

TEST_F(ImageClusterTest, DISABLED_ItsTestPassesAndFailsWithABrokenProgram) {
    const auto whole = run_apptainer({"test", image_});
    EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
    for (const char* program : {"atoll", "atoll-trainer"})
        EXPECT_NE(
            run_apptainer({"test", "--bind", std::string("/bin/false:/opt/atoll/bin/") + program, image_}).exit_code, 0)
            << program;
    const auto alone = run_apptainer({"test", "--bind", "/bin/true:/usr/bin/mpirun", image_});
    EXPECT_NE(alone.exit_code, 0) << "ranks that do not start: " << alone.out;
}

TEST_F(ImageClusterTest, DISABLED_ItSaysWhatIsInItAndRunsWithoutACoordinator) {
    const std::string labels = run_apptainer({"inspect", image_}).out;
    for (const char* label : {"org.opencontainers.image.version: 0.", "org.opencontainers.image.revision: ",
                              "org.atoll.mpi: openmpi-", "org.atoll.pmix: ", "org.atoll.ucx: "})
        EXPECT_NE(labels.find(label), std::string::npos) << label << " in " << labels;
    for (const auto& command :
         {std::vector<std::string>{"run", image_, "report"}, {"run", "--app", "report", image_}}) {
        const auto report = run_apptainer(command);
        EXPECT_NE(report.out.find("\"devices\":[\"cpu\"]"), std::string::npos) << report.out << report.err;
    }
    const auto drivers = run_apptainer({"exec", image_, "ls", "/etc/libibverbs.d"});
    EXPECT_NE(drivers.out.find("mlx5.driver"), std::string::npos) << drivers.out << drivers.err;
}

TEST_F(ImageClusterTest, DISABLED_RanksOfOneNodeShareMemoryHoweverTheyAreStarted) {
    const std::string made = run("make", {"sh", "-c", kMakeTinyModel});
    std::string digest;
    for (const auto& [name, launcher] :
         std::map<std::string, std::string>{{"srun", ""}, {"outside", "mpirun"}, {"inside", "mpirun-in-image"}}) {
        const std::string directory = run(name,
                                          {"atoll-trainer", "train", "--model", made + "/model", "--data",
                                           made + "/data", "--out", "out", "--steps", "3"},
                                          2, launcher);
        const auto log = read_file(directory + "/stdout.jsonl");
        ASSERT_TRUE(log.ok());
        EXPECT_NE(log->find("\"summary\":true"), std::string::npos) << *log;
        const std::string sum = run_command({"sha256sum", directory + "/out/model.safetensors"})->out.substr(0, 64);
        if (digest.empty()) digest = sum;
        EXPECT_EQ(sum, digest) << name;
    }
}

// Through the batch job's shell, srun, the container's runtime.
TEST_F(ImageClusterTest, DISABLED_ANoticeReachesTheTrainerWhichSavesAndEnds) {
    const std::string made = run("tiny", {"sh", "-c", kMakeTinyModel});
    for (const std::int64_t ranks : {1, 2}) {
        bool is_told = false;
        const auto tell = [&](const BatchJobRef& job) {
            const auto log = read_file(job.directory + "/stdout.jsonl");
            if (is_told || !log.ok() || log->find("{\"step\":") == std::string::npos) return;
            is_told = true;
            cluster_->run({"scancel", "--batch", "--signal=USR1", "--name=" + job.name});
        };
        const std::string directory = run("noticed" + std::to_string(ranks),
                                          {"atoll-trainer", "train", "--model", made + "/model", "--data",
                                           made + "/data", "--out", "out", "--steps", "1000000"},
                                          ranks, "", tell);
        EXPECT_TRUE(is_told);
        const auto log = read_file(directory + "/stdout.jsonl");
        EXPECT_TRUE(log.ok() && log->find("\"resumable\":true") != std::string::npos) << ranks << " ranks: " << *log;
        EXPECT_TRUE(std::filesystem::exists(directory + "/out.state"));
    }
}

TEST_F(ImageClusterTest, DISABLED_TheDirectoryMadeOfItRunsOnASystemWithoutItsLibraries) {
    const std::string directory = cluster_->path("scratch");
    CommandOptions options;
    options.timeout = std::chrono::minutes(5);
    const auto made = run_command({ATOLL_IMAGE_SCRIPT, "directory", user_, image_, directory}, options);
    ASSERT_EQ(made->exit_code, 0) << made->out << made->err;
    std::cout << made->out;
    const std::string train =
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=isolated\n"
        "export OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1\n"
        "cd /tmp && rm -rf atoll-test && mkdir atoll-test && cd atoll-test\n" +
        std::string(kMakeTinyModel) +
        "atoll --version && mpirun -n 2 atoll-trainer train --model model --data data --out out --steps 2\n"
        "cd / && rm -rf /tmp/atoll-test\n";
    const auto ran = run_command({ATOLL_IMAGE_SCRIPT, "in-bare", user_, directory, "sh", "-c", train}, options);
    EXPECT_EQ(ran->exit_code, 0) << ran->out << ran->err;
    EXPECT_NE(ran->out.find("\"summary\":true"), std::string::npos) << ran->out << ran->err;
}

TEST_F(ImageClusterTest, DISABLED_TheLoginNodeRunsItsProgramsToo) {
    const SiteCheck check = site().check({"http://127.0.0.1:9"});
    std::map<std::string, CheckRow> rows;
    for (const CheckRow& row : check.rows) rows[row.name] = row;
    EXPECT_EQ(check.devices, std::vector<std::string>{"cpu"});
    EXPECT_EQ(rows["image"].state, CheckState::kOk) << rows["image"].seen;
    EXPECT_NE(rows["image"].seen.find("atoll 0.1.0, computes on cpu"), std::string::npos) << rows["image"].seen;
    EXPECT_NE(rows["store"].seen.find("127.0.0.1:9"), std::string::npos) << rows["store"].seen;
}

}  // namespace
}  // namespace atl::dispatch
