#include "shared/run_settings/run_settings.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "shared/base/file.h"
#include "shared/json/json.h"

namespace atl::run_settings {
namespace {

Status set(RunConfig& config, std::string_view name, std::string_view text) {
    const Option* option = find_option(name, kTrain);
    if (option == nullptr) return not_found("no such option");
    return assign(config, *option, text);
}

Status read_json(RunConfig& config, std::string_view text, Commands command = kTrain) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "run.json";
    if (auto status = write_file_atomic(file, text); !status.ok()) return status;
    return assign_file(config, file, command);
}

TEST(RunConfigTest, FlagsAreTyped) {
    RunConfig config;
    ASSERT_TRUE(set(config, "lr", "1e-3").ok());
    ASSERT_TRUE(set(config, "steps", "20").ok());
    ASSERT_TRUE(set(config, "schedule", "cosine").ok());
    EXPECT_EQ(config.lr, 1e-3);
    EXPECT_EQ(config.steps, 20);
    EXPECT_EQ(config.schedule, LrSchedule::kCosine);
    EXPECT_TRUE(config.given.contains("lr"));
    EXPECT_FALSE(config.given.contains("seed"));
}

TEST(RunConfigTest, WrongValuesAreRefusedByFlag) {
    RunConfig config;
    const std::vector<std::pair<const char*, const char*>> wrong = {
        {"steps", "ten"}, {"steps", "1.5"}, {"steps", "-1"},           {"lr", "nan"},    {"lr", "0.1x"},
        {"lr", ""},       {"beta1", "1"},   {"schedule", "staircase"}, {"threads", "0"}, {"no-decay-norms", "yes"}};
    for (const auto& [name, text] : wrong) {
        const Status status = set(config, name, text);
        ASSERT_FALSE(status.ok()) << name << " " << text;
        EXPECT_EQ(status.error().field, std::string("--") + name);
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    }
}

TEST(RunConfigTest, NumbersOfRowsAndStepsHaveALimit) {
    RunConfig config;
    for (const char* name : {"batch-size", "grad-accum", "global-batch-size", "steps", "epochs"}) {
        EXPECT_TRUE(set(config, name, "1000000").ok()) << name;
        const Status status = set(config, name, "1000000000000000");
        ASSERT_FALSE(status.ok()) << name;
        EXPECT_EQ(status.error().field, std::string("--") + name);
    }
}

TEST(RunConfigTest, WhatIsOutOfRangeIsToldTheRange) {
    RunConfig config;
    struct Wrong {
        const char* name;
        const char* text;
        const char* limit;
    };
    for (const auto& [name, text, limit] :
         {Wrong{"eps", "0", "1e-30"}, Wrong{"max-grad-norm", "-1", "1e+12"}, Wrong{"threads", "5000", "4096"},
          Wrong{"beta1", "1", "0.9999999"}, Wrong{"seed", "-1", " 0 "}, Wrong{"lr", "1e999", "'1e999'"}}) {
        const Status status = set(config, name, text);
        ASSERT_FALSE(status.ok()) << name;
        EXPECT_EQ(status.error().field, std::string("--") + name);
        EXPECT_NE(status.error().message.find(limit), std::string::npos) << status.error().message;
    }
    EXPECT_EQ(set(config, "seed", "18446744073709551615").error().field, "--seed");
}

TEST(RunConfigTest, WhatIsNotBuiltIsRefusedByName) {
    RunConfig config;
    const std::vector<std::pair<const char*, const char*>> unbuilt = {
        {"precision", "fp8"}, {"quantize", "int4"},       {"tp", "2"},
        {"pp", "4"},          {"offload-params", "nvme"}, {"bucket-bytes", "1024"}};
    for (const auto& [name, text] : unbuilt) {
        const Status status = set(config, name, text);
        ASSERT_FALSE(status.ok()) << name;
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << name;
        EXPECT_EQ(status.error().field, std::string("--") + name);
    }
    EXPECT_TRUE(set(config, "tp", "1").ok());
    EXPECT_TRUE(set(config, "masters", "fp32").ok());
    EXPECT_TRUE(set(config, "offload-params", "cpu").ok());
}

TEST(RunConfigTest, LayersToCheckpointNeedSomethingToCompute) {
    const auto refused = [](std::string_view what) {
        RunConfig config;
        EXPECT_TRUE(set(config, "activation-checkpointing", what).ok()) << what;
        EXPECT_TRUE(set(config, "checkpoint-layers", "3").ok());
        const Status status = check_needs(config, kTrain);
        return status.ok() ? "" : status.error().field;
    };
    for (const char* what : {"feed-forward", "all-but-attention", "full"}) EXPECT_EQ(refused(what), "") << what;
    for (const char* what : {"none", "selective"}) EXPECT_EQ(refused(what), "--checkpoint-layers") << what;
}

TEST(RunConfigTest, FormatsThatDoNotGoTogetherAreRefused) {
    using Flags = std::vector<std::pair<const char*, const char*>>;
    const auto refused = [](const Flags& flags) {
        RunConfig config;
        for (const auto& [name, text] : flags) EXPECT_TRUE(set(config, name, text).ok()) << name;
        const Status status = check_needs(config, kTrain);
        return status.ok() ? "" : status.error().field;
    };
    EXPECT_EQ(refused({{"precision", "bf16"}, {"compute-dtype", "bf16"}, {"masters", "none"}}), "");
    EXPECT_EQ(refused({{"compute-dtype", "bf16"}, {"residual-dtype", "fp32"}}), "");
    EXPECT_EQ(refused({{"precision", "fp16"}, {"compute-dtype", "fp16"}}), "");
    EXPECT_EQ(refused({{"precision", "bf16"}, {"compute-dtype", "fp16"}}), "--compute-dtype");
    EXPECT_EQ(refused({{"compute-dtype", "fp16"}}), "--compute-dtype");
    EXPECT_EQ(refused({{"residual-dtype", "bf16"}}), "--residual-dtype");
    EXPECT_EQ(refused({{"precision", "fp16"}, {"masters", "none"}}), "--masters");
    EXPECT_EQ(refused({{"precision", "bf16"}, {"masters", "none"}, {"lora-rank", "2"}}), "--masters");
    EXPECT_EQ(refused({{"reduce-dtype", "bf16"}, {"deterministic", "true"}}), "--reduce-dtype");
    EXPECT_EQ(refused({{"distributed-backend", "nccl"}}), "--distributed-backend");
    EXPECT_EQ(refused({{"distributed-backend", "nccl"}, {"device", "cuda"}}), "");
    EXPECT_EQ(refused({{"distributed-backend", "mpi"}}), "");
}

TEST(RunConfigTest, AWrongTextIsToldTheChoices) {
    RunConfig config;
    const auto message = [&](const char* name, const char* text) { return set(config, name, text).error().message; };
    EXPECT_NE(message("schedule", "wrong").find("constant, linear, cosine"), std::string::npos);
    EXPECT_NE(message("save-dtype", "fp8").find("fp32, bf16, fp16"), std::string::npos);
    EXPECT_TRUE(message("reduce-dtype", "fp16").ends_with("is none of fp32, bf16"));
}

TEST(RunConfigTest, AWrongNumberIsNotCalledUnbuilt) {
    const auto refusal = [](const Option& option, const char* text) {
        RunConfig config;
        const Status status = assign(config, option, text);
        return status.ok() ? "" : status.error().message.substr(status.error().message.rfind('\'') + 1);
    };
    for (const Option& option : options()) {
        if (option.is_built() || !words(option).empty()) continue;
        const std::string unbuilt = refusal(option, "2");
        for (const char* text : {"two", "1.5", "-1", "1e300", "9999999999999999999999"}) {
            EXPECT_NE(refusal(option, text), "") << option.name << " " << text;
            EXPECT_NE(refusal(option, text), unbuilt) << option.name << " " << text;
        }
    }
}

TEST(RunConfigTest, EveryFlagOfTheDesignIsKnown) {
    for (const char* name : {"model",
                             "data",
                             "out",
                             "steps",
                             "epochs",
                             "global-batch-size",
                             "batch-size",
                             "grad-accum",
                             "lr",
                             "lr-embedding",
                             "schedule",
                             "warmup-steps",
                             "optimizer",
                             "beta1",
                             "beta2",
                             "eps",
                             "weight-decay",
                             "momentum",
                             "max-grad-norm",
                             "precision",
                             "loss-scale",
                             "moments-dtype",
                             "compute-dtype",
                             "residual-dtype",
                             "masters",
                             "reduce-dtype",
                             "sharding",
                             "shard-group",
                             "tp",
                             "pp",
                             "offload-optimizer",
                             "offload-params",
                             "offload-dir",
                             "bucket-bytes",
                             "threads",
                             "activation-checkpointing",
                             "lora-rank",
                             "lora-alpha",
                             "lora-dropout",
                             "lora-targets",
                             "lora-freeze-a",
                             "quantize",
                             "train-samples",
                             "val-samples",
                             "shuffle",
                             "seed",
                             "deterministic",
                             "device",
                             "val-data",
                             "eval-every",
                             "save-every",
                             "save-interval",
                             "save-async",
                             "resume",
                             "save-dtype",
                             "time-limit",
                             "no-decay-norms"}) {
        EXPECT_NE(find_option(name, kTrain), nullptr) << name;
    }
}

TEST(RunConfigTest, EachOptionSaysWhatItChangesOfTheResult) {
    for (const Option& option : options()) {
        EXPECT_GE(option.effect, Effect::kNone) << option.name;
        EXPECT_LE(option.effect, Effect::kSavedFiles) << option.name;
    }
}

TEST(RunConfigTest, AFileSetsTheSameOptions) {
    RunConfig config;
    ASSERT_TRUE(
        read_json(config, R"({"steps": 7, "lr": 0.5, "warmup_steps": 2, "no_decay_norms": true, "eps": 1e-6})").ok());
    EXPECT_EQ(config.steps, 7);
    EXPECT_EQ(config.lr, 0.5);
    EXPECT_EQ(config.warmup_steps, 2);
    EXPECT_EQ(config.eps, 1e-6);
    EXPECT_TRUE(config.no_decay_norms);
}

TEST(RunConfigTest, AFileSetsWhatOneCommandAloneHas) {
    RunConfig config;
    ASSERT_TRUE(
        read_json(config,
                  R"({"ranks": 8, "ranks_per_node": 4, "memory_bytes": 1000, "device": "cuda", "card": "h100"})", kPlan)
            .ok());
    EXPECT_EQ(config.ranks, 8);
    EXPECT_EQ(config.ranks_per_node, 4);
    EXPECT_EQ(config.memory_bytes, 1000);
    EXPECT_EQ(config.card, "h100");
    const char* const text = R"({"prompt": "a", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 3})";
    ASSERT_TRUE(read_json(config, text, kGenerate).ok());
    EXPECT_EQ(config.prompt, "a");
    EXPECT_EQ(config.max_tokens, 5);
    EXPECT_EQ(config.top_p, 0.9);
    EXPECT_TRUE(check_needs(config, kGenerate).ok());
    EXPECT_EQ(read_json(config, text, kPlan).error().message, "is a setting of other commands");
}

TEST(RunConfigTest, AFilesErrorsNameTheKeyAndTheFile) {
    const std::vector<std::pair<const char*, const char*>> wrong = {{R"({"stepz": 7})", "stepz"},
                                                                    {R"({"warmup-steps": 7})", "warmup-steps"},
                                                                    {R"({"steps": 1.5})", "steps"},
                                                                    {R"({"steps": "7"})", "steps"},
                                                                    {R"({"lr": "0.1"})", "lr"},
                                                                    {R"({"resume": 1})", "resume"},
                                                                    {R"({"schedule": "x"})", "schedule"},
                                                                    {R"({"tp": 2})", "tp"},
                                                                    {R"([1])", "run.json"},
                                                                    {R"({"steps": 1, "steps": 2})", "run.json"},
                                                                    {R"({)", "run.json"}};
    for (const auto& [text, name] : wrong) {
        RunConfig config;
        const Status status = read_json(config, text);
        ASSERT_FALSE(status.ok()) << text;
        EXPECT_NE(status.error().field.find(name), std::string::npos) << text << ": " << status.error().field;
        EXPECT_NE(status.error().field.find("run.json"), std::string::npos);
    }
}

TEST(RunConfigTest, AFileSaysOnOrOffInWords) {
    RunConfig config;
    EXPECT_EQ(read_json(config, R"({"shuffle": false})").error().message, R"(must be "on" or "off")");
    EXPECT_TRUE(read_json(config, R"({"shuffle": "off"})").ok());
}

TEST(RunConfigTest, AnotherCommandsKeyIsRefused) {
    RunConfig config;
    EXPECT_EQ(read_json(config, R"({"lr": 0.1})", kEval).error().message, "is a setting of other commands");
}

TEST(BatchPlanTest, TheGlobalBatchIsBatchTimesRanksTimesAccumulation) {
    RunConfig config;
    config.batch_size = 4;
    config.grad_accum = 3;
    EXPECT_EQ(plan_batch(config, 2)->global, 24);
    EXPECT_EQ(plan_batch(RunConfig{}, 2)->global, 2);
}

TEST(BatchPlanTest, TheGlobalBatchDividesOverRanksAndMicroSteps) {
    RunConfig config;
    config.global_batch_size = 16;
    EXPECT_EQ(plan_batch(config, 4)->micro, 4);
    config.batch_size = 2;
    EXPECT_EQ(plan_batch(config, 4)->accumulation, 2);
    config.batch_size = 0;
    config.grad_accum = 4;
    EXPECT_EQ(plan_batch(config, 4)->micro, 1);
}

TEST(BatchPlanTest, ABatchThatDoesNotDivideIsRefused) {
    RunConfig config;
    config.global_batch_size = 10;
    EXPECT_EQ(plan_batch(config, 4).error().field, "--global-batch-size");
    config.global_batch_size = 16;
    config.batch_size = 3;
    EXPECT_FALSE(plan_batch(config, 2).ok());
    config.batch_size = 8;
    EXPECT_FALSE(plan_batch(config, 4).ok());
    config.batch_size = 2;
    config.grad_accum = 2;
    EXPECT_FALSE(plan_batch(config, 2).ok());
    EXPECT_TRUE(plan_batch(config, 4).ok());
}

TEST(BatchPlanTest, MoreRowsThanANumberHoldsAreRefused) {
    RunConfig config;
    config.batch_size = config.grad_accum = 1'000'000;
    EXPECT_EQ(plan_batch(config, 1 << 20).error().field, "--grad-accum") << "whose product is 10^18";
    config.grad_accum = 1000;
    EXPECT_TRUE(plan_batch(config, 1).ok());
}

TEST(BatchPlanTest, MoreRowsAtOnceThanAMicroStepTakesAreRefused) {
    RunConfig config;
    config.global_batch_size = 1'000'000'000;
    EXPECT_EQ(plan_batch(config, 1).error().field, "--global-batch-size");
    config.deterministic = true;
    EXPECT_TRUE(plan_batch(config, 1).ok()) << "a row at a time";
    config.deterministic = false;
    config.batch_size = 1000;
    EXPECT_EQ(plan_batch(config, 1)->accumulation, 1'000'000);
}

TEST(StepsTest, EpochsSeeEveryRow) {
    RunConfig config;
    config.epochs = 2;
    EXPECT_EQ(*plan_steps(config, 10, 4), 5);
    EXPECT_EQ(*plan_steps(config, 11, 4), 6);
    EXPECT_EQ(*plan_steps(config, 2'000'000'000, 4), 1'000'000'000);
    for (const std::int64_t rows : {std::int64_t{2'000'000'004}, std::int64_t{1} << 50, std::int64_t{1} << 62})
        EXPECT_EQ(plan_steps(config, rows, 4).error().field, "--epochs") << rows;
    config.epochs = 0;
    EXPECT_EQ(plan_steps(config, 10, 4).error().field, "--steps");
}

TEST(StepsTest, AFilesEpochsCanBeTakenBack) {
    RunConfig config;
    ASSERT_TRUE(read_json(config, R"({"epochs": 2})").ok());
    ASSERT_TRUE(set(config, "steps", "3").ok());
    const auto both = plan_steps(config, 10, 4);
    ASSERT_FALSE(both.ok());
    EXPECT_NE(both.error().message.find("--epochs 0"), std::string::npos) << both.error().message;
    ASSERT_TRUE(set(config, "epochs", "0").ok());
    EXPECT_EQ(*plan_steps(config, 10, 4), 3);
}

TEST(StepsTest, NoStepsBesideEpochsTakeBackAFilesSteps) {
    RunConfig config;
    ASSERT_TRUE(read_json(config, R"({"steps": 3})").ok());
    ASSERT_TRUE(set(config, "steps", "0").ok());
    EXPECT_EQ(*plan_steps(config, 10, 4), 0) << "the model is written as it is";
    ASSERT_TRUE(set(config, "epochs", "2").ok());
    EXPECT_EQ(*plan_steps(config, 10, 4), 5);
}

TEST(RunConfigTest, ValuesAreShownAsTheyAreWritten) {
    RunConfig config;
    for (const auto& [name, text] : {std::pair("lr", "0.001"), std::pair("steps", "7"), std::pair("shuffle", "off"),
                                     std::pair("save-dtype", "bf16"), std::pair("out", "there")}) {
        EXPECT_TRUE(set(config, name, text).ok());
        EXPECT_EQ(value_text(config, *find_option(name, kTrain)), text);
    }
    EXPECT_EQ(value_text({}, *find_option("save-dtype", kTrain)), "");
}

TEST(RunConfigTest, TheTokensOfAMicroStepHaveALimit) {
    EXPECT_TRUE(check_micro_step(1'000'000, 2048).ok());
    EXPECT_EQ(check_micro_step(1'000'000, 4096).error().field, "--batch-size");
}

TEST(RunConfigTest, ATraceBeginsInARunAndLayersAreTheModels) {
    RunConfig config;
    config.trace_steps = 1;
    config.trace_from = 4;
    config.checkpoint_layers = 2;
    EXPECT_TRUE(check_extent(config, 4, 2).ok());
    EXPECT_EQ(check_extent(config, 3, 2).error().field, "--trace-from");
    EXPECT_EQ(check_extent(config, 4, 1).error().field, "--checkpoint-layers");
}

TEST(RunConfigTest, ErrorsCanBeSpelledAsKeys) {
    const Error error = with_keys(invalid_argument("--grad-accum", "--batch-size × --grad-accum: --steps 2 - or not"));
    EXPECT_EQ(error.field, "grad_accum");
    EXPECT_EQ(error.message, "batch_size × grad_accum: steps 2 - or not");
}

// The dispatch service walks the same cases: services/dispatch/domain/training_settings_test.cpp.
TEST(RunSettingsCasesTest, AreAnsweredAsTheyAreWritten) {
    for (const json::Json& one : json::parse(read_file(ATOLL_FIXTURES "/run_settings_cases.json").value()).value()) {
        RunConfig config;
        Status status = assign_json(config, one.at("settings"), kTrain);
        if (status.ok()) status = check_training(config, one.at("ranks"));
        // A job's trainings are given the validation rows of their dataset.
        const std::string refused = one.value("refused", one.value("refused_without_val_data", ""));
        EXPECT_EQ(status.ok() ? "" : with_keys(status.error()).field, refused) << one;
        if (!one.contains("refused_without_val_data")) continue;
        config.val_data = "validation";
        EXPECT_TRUE(check_training(config, one.at("ranks")).ok()) << one;
    }
}

TEST(RunConfigTest, ACpuComputesInFp32AndAGpuInTheFormatOfTheWeights) {
    RunConfig config;
    config.precision = Precision::kBf16;
    EXPECT_EQ(config.computes_in(), Precision::kFp32);
    config.device = Device::kCuda;
    EXPECT_EQ(config.computes_in(), Precision::kBf16);
    EXPECT_EQ(config.residual_in(), Precision::kBf16);
    config.compute_dtype = Precision::kFp32;
    EXPECT_EQ(config.computes_in(), Precision::kFp32);
}

}  // namespace
}  // namespace atl::run_settings
