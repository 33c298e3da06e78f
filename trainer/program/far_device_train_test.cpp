// Training on a device whose memory the host cannot touch and whose outcomes come late, in this process; beside the
// program on the CPU.

#include <cmath>
#include <map>

#include "shared/digest/digest.h"
#include "trainer/comm/comm.h"
#include "trainer/kernels/testing/far_backend.h"
#include "trainer/model_io/model_directory.h"
#include "trainer/program/testing/program_fixture.h"
#include "trainer/train/run_fingerprint.h"
#include "trainer/train/trainer.h"

namespace atl::program {
namespace {

class FarDeviceTrainTest : public ProgramTest {
  protected:
    struct Outcome {
        Status status;
        std::vector<nlohmann::json> lines;
        int host_waits = 0;
    };

    // `flags` are names and values: {"steps", "5"}.
    Outcome train_far(const std::string& out, const std::vector<std::pair<std::string, std::string>>& flags,
                      std::uint64_t seed = 1) const {
        run_settings::RunConfig config;
        const auto set = [&](const std::string& name, const std::string& value) {
            const run_settings::Option* const option = run_settings::find_option(name, run_settings::kTrain);
            check(option != nullptr, "no such flag");
            const Status assigned = run_settings::assign(config, *option, value);
            check(assigned.ok(), assigned.ok() ? "" : assigned.error().message);
        };
        set("model", path("model"));
        set("data", path("data.safetensors"));
        set("out", path(out));
        set("threads", "1");
        set("overwrite", "true");
        for (const auto& [name, value] : flags) set(name, value);
        const auto comm = comm::make_self();
        const train::StopRequest stop;
        auto prepared = train::prepare_training(config, *comm, train::rank_counts(*comm)).value();
        prepared.base_sha256 = model_io::base_digest(prepared.directory, *comm, false).value();
        const std::string fingerprint = train::run_fingerprint(prepared, *comm).value();
        kernels::FarBackend backend(kernels::make_cpu_backend(1).value(), seed);
        const auto memory =
            parallel::RunMemory::allocate(backend, prepared.directory.model, train::run_memory_options(prepared, 0, 1))
                .value();
        const int before = backend.host_waits();
        testing::internal::CaptureStdout();
        Outcome outcome{.status = train::Trainer(prepared, fingerprint, *memory, backend, *comm, stop, 0).run(),
                        .lines = {}};
        outcome.lines = lines_of(testing::internal::GetCapturedStdout());
        outcome.host_waits = backend.host_waits() - before;
        return outcome;
    }

    static std::string digest_of(const std::string& file) { return digest::sha256(read_file(file).value()); }
    static std::vector<std::string> arguments_of(const std::vector<std::pair<std::string, std::string>>& flags) {
        std::vector<std::string> arguments;
        for (const auto& [name, value] : flags) {
            arguments.push_back("--" + name);
            if (value != "true") arguments.push_back(value);
        }
        return arguments;
    }

    // The lines and the model are those of the program on the CPU.
    void expect_same(const std::vector<std::pair<std::string, std::string>>& flags) const {
        std::filesystem::remove_all(path("near"));
        std::filesystem::remove_all(path("far"));
        const CommandResult near = train("near", arguments_of(flags));
        ASSERT_EQ(near.exit_code, 0) << near.err;
        for (const std::uint64_t seed : {1U, 2U}) {
            const Outcome far = train_far("far", flags, seed);
            ASSERT_TRUE(far.status.ok()) << far.status.error().message;
            const auto wanted = lines_of(near.out);
            ASSERT_EQ(far.lines.size(), wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                for (const char* name : {"step", "loss", "lr", "grad_norm", "loss_scale", "val_loss", "tokens",
                                         "final_loss", "skipped_steps"})
                    EXPECT_EQ(far.lines[i].value(name, nlohmann::json()), wanted[i].value(name, nlohmann::json()))
                        << name << " of line " << i;
            }
            const char* const file = std::filesystem::exists(path("near/model.safetensors"))
                                         ? "/model.safetensors"
                                         : "/adapter_model.safetensors";
            EXPECT_EQ(digest_of(path("far") + file), digest_of(path("near") + file));
        }
    }
};

TEST_F(FarDeviceTrainTest, TrainsWhatTheCpuTrains) {
    expect_same({{"steps", "7"}, {"batch-size", "4"}, {"grad-accum", "2"}});
    expect_same({{"steps", "7"}, {"batch-size", "4"}, {"save-every", "3"}, {"activation-checkpointing", "selective"}});
    expect_same({{"steps", "5"},
                 {"batch-size", "4"},
                 {"val-data", path("data.safetensors")},
                 {"eval-every", "2"},
                 {"precision", "bf16"},
                 {"compute-dtype", "bf16"}});
    expect_same({{"steps", "4"}, {"batch-size", "2"}, {"lora-rank", "4"}, {"lora-dropout", "0.2"}});
    expect_same({{"steps", "4"}, {"batch-size", "1"}, {"grad-accum", "4"}, {"deterministic", "true"}});
    expect_same({{"steps", "4"}, {"batch-size", "2"}, {"control-variate", "0.7"}, {"save-every", "2"}});
}

// The program's flag changes nothing on the CPU. A quantised base comes block by block, too.
TEST_F(FarDeviceTrainTest, TrainsTheSameWithItsWeightsInTheHostsMemory) {
    const CommandResult kept = train("kept", {"--steps", "5", "--batch-size", "4", "--offload-params", "none"});
    expect_same({{"steps", "5"}, {"batch-size", "4"}, {"offload-params", "cpu"}, {"offload-optimizer", "cpu"}});
    EXPECT_EQ(digest_of(path("kept/model.safetensors")), digest_of(path("far/model.safetensors"))) << kept.err;
    expect_same({{"steps", "5"},
                 {"batch-size", "4"},
                 {"offload-params", "cpu"},
                 {"precision", "bf16"},
                 {"masters", "none"},
                 {"proximal-mu", "0.1"},
                 {"save-every", "2"},
                 {"save-async", "on"}});
    for (const char* format : {"int8", "nf4"})
        expect_same({{"steps", "4"},
                     {"batch-size", "2"},
                     {"lora-rank", "4"},
                     {"quantize", format},
                     {"offload-params", "cpu"},
                     {"val-data", path("data.safetensors")}});
}

// The scale of the loss, halved while the host does not know it yet.
TEST_F(FarDeviceTrainTest, ScalesTheLossAsTheCpuDoes) {
    const std::vector<std::pair<std::string, std::string>> flags = {
        {"steps", "9"}, {"batch-size", "4"}, {"precision", "fp16"}, {"compute-dtype", "fp16"}, {"loss-scale", "1e6"}};
    EXPECT_GT(train_far("far", flags).lines.back().at("skipped_steps"), 0);
    expect_same(flags);
}

TEST_F(FarDeviceTrainTest, WaitsOnceAStep) {
    const auto waits = [&](const std::string& steps) {
        return train_far("far", {{"steps", steps}, {"batch-size", "2"}, {"grad-accum", "2"}}).host_waits;
    };
    EXPECT_EQ(waits("28") - waits("8"), 20);
}

TEST_F(FarDeviceTrainTest, ATraceShowsWhatTheDeviceDidInEachStep) {
    const Outcome far = train_far(
        "far", {{"steps", "7"}, {"batch-size", "2"}, {"grad-accum", "2"}, {"trace-steps", "3"}, {"trace-from", "3"}});
    ASSERT_TRUE(far.status.ok());
    const auto trace = nlohmann::json::parse(read_file(path("far.trace/rank-0.json")).value());
    std::map<int, std::string> rows;
    std::map<std::string, int> counts;  // by row and name
    for (const auto& event : trace["traceEvents"]) {
        if (event["name"] == "thread_name") rows[event["tid"]] = event["args"]["name"];
        if (event["ph"] == "X") ++counts[rows.at(event["tid"]) + ": " + event["name"].get<std::string>()];
    }
    EXPECT_EQ(rows.size(), 5U);
    for (const std::string kind : {"forward", "backward"})
        EXPECT_EQ(counts["device: computes: " + kind + " layers.1"], 3 * 2) << "steps of two micro-steps each";
    EXPECT_EQ(counts["device: copies out: copy out loss and norm"], 3);
    for (const std::string step : {"step 3", "step 4", "step 5"}) EXPECT_EQ(counts["host: " + step], 1);
    EXPECT_EQ(counts["host: wait for device step 3"], 1) << "while the device has step 4 to do";
    EXPECT_EQ(counts["host: wait for device step 5"], 0) << "after the last that is traced";
}

TEST_F(FarDeviceTrainTest, AStepThatIsNotFiniteIsToldByItsNumberAndNothingIsSaved) {
    const std::vector<std::pair<std::string, std::string>> flags = {
        {"steps", "30"}, {"batch-size", "4"}, {"optimizer", "sgd"}, {"lr", "1e6"}, {"max-grad-norm", "0"}};
    const CommandResult near = train("near", arguments_of(flags));
    const Outcome far = train_far("far", flags);
    ASSERT_NE(near.exit_code, 0);
    ASSERT_FALSE(far.status.ok());
    const std::string step = far.status.error().message.substr(0, far.status.error().message.find(':'));
    EXPECT_NE(near.err.find(step + ":"), std::string::npos) << near.err << far.status.error().message;
    EXPECT_EQ(far.lines.size(), lines_of(near.out).size());
    EXPECT_FALSE(std::filesystem::exists(path("far/model.safetensors")));
}

}  // namespace
}  // namespace atl::program
