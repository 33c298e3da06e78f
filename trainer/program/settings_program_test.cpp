// Which settings make another run: the table says it of each option, the trained weights show it, and what --resume
// compares must agree with both.
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "shared/run_settings/run_settings.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

using run_settings::Effect;
using Settings = std::map<std::string, std::string>;  // an empty value: not given

class SettingsProgramTest : public ProgramTest {
  protected:
    // An option, the value that it is changed to, and what of the basic settings differs on both sides.
    struct Change {
        std::string option;
        std::string value;
        Settings both = {};
        int ranks = 1;
    };
    struct Outcome {
        std::string weights;
        std::string fingerprint;
    };

    SettingsProgramTest() {
        EXPECT_EQ(run({"init", "--config", path("config.json"), "--out", path("other"), "--seed", "2"}).exit_code, 0);
        std::vector<std::int32_t> ids, segments;
        for (std::int32_t i = 0; i < 32 * 16; ++i) {
            ids.push_back(i * i % 89);
            segments.push_back(1 + i % 16 / 8);
        }
        write_data("packed.safetensors", 16, {{"input_ids", ids}, {"segment_ids", segments}});
        for (const char* seed : {"1", "2"})
            EXPECT_EQ(
                train(std::string("adapter") + seed, {"--steps", "1", "--lora-rank", "2", "--seed", seed}).exit_code,
                0);
        EXPECT_EQ(train("kept", {"--steps", "1", "--keep-optimizer"}).exit_code, 0);
        EXPECT_EQ(train("rounded", {"--steps", "1", "--update-format", "int4"}).exit_code, 0);
        EXPECT_EQ(train("controlled", {"--steps", "1", "--control-variate", "0.5"}).exit_code, 0);
        EXPECT_EQ(
            run({"init", "--config", path("config.json"), "--out", path("common"), "--seed", "3", "--dtype", "bf16"})
                .exit_code,
            0);
        fs::copy(path("model"), path("second"));
        fs::create_directory(path("second/control_variate"));
        fs::copy(path("common/model.safetensors"), path("second/control_variate/model.safetensors"));
        fs::create_directory(path("scratch"));
    }

    Settings basic() const {
        return {{"model", path("model")},   {"data", path("data.safetensors")},
                {"out", path("out")},       {"steps", "2"},
                {"global-batch-size", "2"}, {"lr", "0.05"},
                {"deterministic", "true"},  {"save-dtype", "fp32"},
                {"threads", "1"},           {"peak-tflops", "1"}};
    }
    std::vector<Change> changes() const {
        auto all = changes_of_learning();
        for (Change& one : changes_of_running()) all.push_back(std::move(one));
        return all;
    }
    std::vector<Change> changes_of_learning() const;
    std::vector<Change> changes_of_running() const;
    Outcome train_with(const Settings& settings, int ranks) const;
    void expect_effect(const run_settings::Option& option, const Change& change);

    std::map<std::pair<Settings, int>, Outcome> before_;  // what the unchanged settings come to
};

// Data, optimizer and rates.
std::vector<SettingsProgramTest::Change> SettingsProgramTest::changes_of_learning() const {
    const Settings sgd = {{"optimizer", "sgd"}};
    const Settings validated = {{"val-data", path("data.safetensors")}};
    const Settings control = {{"model", path("second")}, {"control-variate", "0.5"}};
    Settings corrected = control;
    corrected["control-variate-from"] = path("controlled");
    const Settings by_ranks = {{"global-batch-size", ""}, {"batch-size", "1"}, {"grad-accum", "1"}};
    return {
        {"model", path("other")},
        {"data", path("packed.safetensors")},
        {"out", path("elsewhere")},
        {"val-data", path("data.safetensors")},
        {"steps", "3"},
        {"epochs", "2", {{"steps", ""}, {"epochs", "1"}, {"global-batch-size", "16"}}},
        {"global-batch-size", "4"},
        {"batch-size", "2", by_ranks},
        {"grad-accum", "2", by_ranks},
        {"train-samples", "8"},
        {"val-samples", "4", validated},
        {"shuffle", "off"},
        {"cross-document-attention", "on", {{"data", path("packed.safetensors")}}},
        {"seed", "1"},
        {"optimizer", "sgd"},
        {"lr", "0.01"},
        {"lr-embedding", "0.1"},
        {"schedule", "cosine"},
        {"warmup-steps", "2"},
        {"warmup-from-zero", "off", {{"warmup-steps", "2"}}},
        {"schedule-runs", "2", {{"schedule", "linear"}}},
        {"schedule-run", "2", {{"schedule", "linear"}, {"schedule-runs", "2"}}},
        {"beta1", "0.5"},
        {"beta2", "0.9"},
        {"eps", "0.1"},
        {"weight-decay", "0.5"},
        {"momentum", "0.9", sgd},
        {"no-decay-norms", "true"},
        {"max-grad-norm", "0.01"},
        {"proximal-mu", "0.5"},
        {"control-variate", "0.5"},
        {"control-variate-name", "mine", control},
        {"control-variate-from", path("controlled"), control},
        {"control-variate-if-named", "another", corrected},
    };
}

// Formats, sharding, memory, adapters, and what is saved when.
std::vector<SettingsProgramTest::Change> SettingsProgramTest::changes_of_running() const {
    const Settings bf16 = {{"precision", "bf16"}}, lora = {{"lora-rank", "2"}};
    const Settings validated = {{"val-data", path("data.safetensors")}};
    const Settings int4 = {{"update-format", "int4"}, {"save-dtype", ""}};
    Settings feedback = int4;
    feedback["rounding-error-from"] = path("rounded");
    return {
        {"precision", "bf16"},
        {"loss-scale", "1024", {{"precision", "fp16"}}},
        {"moments-dtype", "bf16"},
        {"compute-dtype", "bf16"},
        {"residual-dtype", "fp32", {{"compute-dtype", "bf16"}}},
        {"masters", "none", bf16},
        {"reduce-dtype", "bf16", {{"deterministic", ""}}, 2},
        {"sharding", "full_shard", {}, 2},
        {"shard-group", "1", {{"sharding", "hybrid_shard"}}, 2},
        {"distributed-backend", "mpi"},
        {"threads", "2"},
        {"deterministic", ""},
        {"activation-checkpointing", "full"},
        {"checkpoint-layers", "1", {{"activation-checkpointing", "full"}}},
        {"offload-optimizer", "cpu"},
        {"offload-params", "cpu"},
        {"offload-dir", path("scratch"), {{"offload-optimizer", "nvme"}, {"offload-dir", path(".")}}},
        {"adapter", path("adapter2"), {{"adapter", path("adapter1")}}},
        {"lora-rank", "4", lora},
        {"lora-alpha", "8", lora},
        {"lora-dropout", "0.5", lora},
        {"lora-targets", "q_proj", lora},
        {"lora-freeze-a", "on", lora},
        {"broadcast-from-rank0", "true"},
        {"quantize", "nf4", lora},
        {"eval-every", "1", validated},
        {"save-best", "true", validated},
        {"save-every", "1"},
        {"save-interval", "1"},
        {"save-async", "on", {{"save-every", "1"}}},
        {"resume", "true"},
        {"overwrite", "true"},
        {"keep-optimizer", "true"},
        {"optimizer-name", "mine", {{"keep-optimizer", "true"}}},
        {"optimizer-from", path("kept")},
        {"optimizer-if-named", "another", {{"optimizer-from", path("kept")}}},
        {"save-dtype", "bf16"},
        {"token-counts", "true"},
        {"update-format", "int8", int4},
        {"update-base", "mine", int4},
        {"rounding-error-name", "mine", int4},
        {"rounding-error-from", path("rounded"), int4},
        {"rounding-error-if-named", "another", feedback},
        {"time-limit", "1000"},
        {"collective-timeout", "100"},
        {"peak-tflops", "2"},
        {"loss-tokens-min", "64"},
        {"trace-steps", "1"},
        {"trace-from", "2", {{"trace-steps", "1"}}},
    };
}

// A whole run in a directory of its own. What it is known by is the record beside its result.
SettingsProgramTest::Outcome SettingsProgramTest::train_with(const Settings& settings, int ranks) const {
    const std::string out = settings.at("out");
    for (const char* suffix : {"", ".state", ".trace", ".best"}) fs::remove_all(out + suffix);
    std::vector<std::string> arguments = {"train"};
    for (const auto& [name, value] : settings) {
        if (value.empty()) continue;
        arguments.push_back("--" + name);
        if (value != "true") arguments.push_back(value);
    }
    const auto result = run(arguments, ranks);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const char* file = "/model.safetensors";
    for (const char* other : {"/adapter_model.safetensors", "/delta.safetensors"})
        if (fs::exists(out + other)) file = other;
    const auto weights = read_file(out + file);
    const auto fingerprint = read_file(out + ".state/finished.json");
    EXPECT_TRUE(weights.ok() && fingerprint.ok()) << result.err;
    return weights.ok() && fingerprint.ok() ? Outcome{*weights, *fingerprint} : Outcome{};
}

void SettingsProgramTest::expect_effect(const run_settings::Option& option, const Change& change) {
    Settings settings = basic();
    for (const auto& [name, value] : change.both) settings[name] = value;
    const auto [known, is_new] = before_.try_emplace({settings, change.ranks});
    if (is_new) known->second = train_with(settings, change.ranks);
    const Outcome& before = known->second;
    settings[change.option] = change.value;
    const Outcome after = train_with(settings, change.ranks);
    const bool is_another_run = before.fingerprint != after.fingerprint;
    EXPECT_EQ(is_another_run, option.effect != Effect::kNone) << after.fingerprint;
    if (before.weights != after.weights) {
        EXPECT_TRUE(is_another_run) << "it changes the weights, and --resume would not notice";
    }
}

TEST_F(SettingsProgramTest, EachOptionThatChangesTheResultAndNoOtherMakesAnotherRun) {
    const auto all = changes();
    for (const run_settings::Option& option : run_settings::options()) {
        // The device is not here; the formats that it computes with are: RunFingerprintTest.
        if ((option.commands & run_settings::kTrain) == 0 || !option.is_built() || option.name == "device") continue;
        SCOPED_TRACE(std::string(option.name));
        const auto change = std::ranges::find(all, option.name, &Change::option);
        ASSERT_NE(change, all.end()) << "a new option: add what it is changed to above";
        expect_effect(option, *change);
    }
}

}  // namespace
}  // namespace atl::program
