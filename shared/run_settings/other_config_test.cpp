#include "shared/run_settings/other_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "shared/base/file.h"
#include "shared/run_settings/run_settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace atl::run_settings {
namespace {

using json::Json;

const std::filesystem::path kOtherConfigs = std::filesystem::path(ATOLL_FIXTURES) / "other_configs";

std::string text_of(const std::string& name) {
    return read_file(kOtherConfigs / name).value();
}

TranslatedConfig translate(const std::string& text) {
    const auto other = recognize_config(text);
    EXPECT_TRUE(other) << text;
    if (!other) return {};
    auto made = translate_config(*other);
    EXPECT_TRUE(made.ok()) << made.error().field << ": " << made.error().message;
    return made.ok() ? std::move(made).value() : TranslatedConfig();
}

std::map<std::string, std::string> notes_of(const TranslatedConfig& made) {
    std::map<std::string, std::string> notes;
    for (const ConfigNote& note : made.notes) EXPECT_TRUE(notes.emplace(note.key, note.text).second) << note.key;
    return notes;
}

std::vector<std::string> keys_of(const std::map<std::string, std::string>& notes) {
    std::vector<std::string> keys;
    for (const auto& [key, text] : notes) keys.push_back(key);
    return keys;
}

TEST(OtherConfigTest, DeepSpeedsFileBecomesARunConfiguration) {
    const TranslatedConfig made = translate(text_of("deepspeed_zero3.json"));
    EXPECT_EQ(made.settings,
              Json::parse(R"({"global_batch_size": 64, "batch_size": 4, "grad_accum": 2, "max_grad_norm": 1.0,
        "precision": "bf16", "optimizer": "adamw", "lr": 2e-5, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
        "schedule": "linear", "warmup_steps": 100, "warmup_from_zero": "on", "steps": 1000, "sharding": "full_shard", "offload_optimizer": "nvme",
        "offload_dir": "/local/nvme", "offload_params": "cpu"})"));
    EXPECT_EQ(keys_of(notes_of(made)),
              (std::vector<std::string>{
                  "steps_per_print", "zero_optimization.contiguous_gradients",
                  "zero_optimization.offload_optimizer.pin_memory", "zero_optimization.offload_param.pin_memory",
                  "zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size",
                  "zero_optimization.stage3_gather_16bit_weights_on_model_save", "zero_optimization.sub_group_size"}));
}

TEST(OtherConfigTest, WhatIsAutoIsNamedWithTheSettingToGive) {
    const TranslatedConfig made = translate(text_of("deepspeed_auto.json"));
    EXPECT_EQ(made.settings,
              Json::parse(R"({"optimizer": "adamw", "schedule": "constant", "sharding": "shard_grad_op"})"));
    const auto notes = notes_of(made);
    for (const auto& [key, ours] :
         std::vector<std::pair<const char*, const char*>>{{"train_micro_batch_size_per_gpu", "batch_size"},
                                                          {"gradient_clipping", "max_grad_norm"},
                                                          {"optimizer.params.lr", "lr"},
                                                          {"optimizer.params.betas", "beta1 and beta2"},
                                                          {"scheduler.params.warmup_num_steps", "warmup_steps"},
                                                          {"fp16.enabled", "precision"}}) {
        ASSERT_TRUE(notes.contains(key)) << key;
        EXPECT_NE(notes.at(key).find(std::string("set ") + ours), std::string::npos) << notes.at(key);
        EXPECT_NE(notes.at(key).find("auto"), std::string::npos) << notes.at(key);
    }
}

// Where a file of DeepSpeed says nothing, DeepSpeed's default holds and not ours.
TEST(OtherConfigTest, DeepSpeedsDefaultsAreSaidWhereOursDiffer) {
    const TranslatedConfig made = translate(R"({"zero_optimization": {}, "optimizer": {"type": "Adam"},
        "scheduler": {"type": "WarmupCosineLR"}, "fp16": {"enabled": true, "initial_scale_power": 12}})");
    EXPECT_EQ(made.settings, Json::parse(R"({"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0, "schedule": "cosine",
        "warmup_steps": 1000, "warmup_from_zero": "on", "precision": "fp16", "loss_scale": 4096.0, "max_grad_norm": 0})"));
    EXPECT_TRUE(notes_of(made).contains("gradient_clipping"));
    EXPECT_TRUE(notes_of(made).contains("scheduler.params.warmup_type")) << "its warm-up is along a logarithm";
}

// DeepSpeed's two schedulers have a rate of their own, 1e-3, and leave the optimizer's alone.
TEST(OtherConfigTest, AScheduleWithoutARateIsDeepSpeedsAndNotTheOptimizers) {
    const auto translated = [](const std::string& type, const std::string& params) {
        return translate(R"({"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}}, "scheduler": {"type": ")" + type +
                         R"(", "params": )" + params + "}}");
    };
    for (const char* type : {"WarmupLR", "WarmupDecayLR"}) {
        const TranslatedConfig made = translated(type, R"({"total_num_steps": 9})");
        EXPECT_EQ(made.settings["lr"], 1e-3) << type;
        EXPECT_TRUE(notes_of(made).contains("scheduler.params.warmup_max_lr")) << type;
        EXPECT_EQ(translated(type, R"({"warmup_max_lr": 3e-5})").settings["lr"], 3e-5) << type;
        EXPECT_EQ(translated(type, R"({"warmup_max_lr": "auto"})").settings["lr"], 2e-5) << type;
    }
    EXPECT_EQ(translated("WarmupCosineLR", "{}").settings["lr"], 2e-5);
}

TEST(OtherConfigTest, AValueThatSetsNothingIsNoted) {
    const auto expect_noted = [](const std::string& text, const std::vector<std::string>& wanted) {
        const auto notes = notes_of(translate(text));
        for (const std::string& key : wanted) EXPECT_TRUE(notes.contains(key)) << key << " of " << text;
    };
    expect_noted(R"({"fp16": {"enabled": "true"}, "bf16": {"enabled": 1},
                     "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "low"}}})",
                 {"fp16.enabled", "bf16.enabled", "scheduler.params.warmup_min_lr"});
    expect_noted(R"({"fp16": {"enabled": true, "loss_scale": "x", "initial_scale_power": "y"}, "scheduler": {}})",
                 {"fp16.loss_scale", "fp16.initial_scale_power", "scheduler.type"});
    expect_noted(R"({"zero_optimization": {"stage": 9, "zero_hpz_partition_size": "x", "offload_optimizer":
                     {"device": "cpu", "nvme_path": "/n"}, "offload_param": {"device": "cpu", "nvme_path": 1}}})",
                 {"zero_optimization.stage", "zero_optimization.zero_hpz_partition_size",
                  "zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path"});
    const std::string accelerate = "compute_environment: LOCAL_MACHINE\nmixed_precision: bf32\ndistributed_type: ";
    expect_noted(accelerate + "FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: nonsense\n",
                 {"mixed_precision", "fsdp_config.fsdp_reshard_after_forward"});
    expect_noted(accelerate + "FSDP\nfsdp_config:\n  fsdp_sharding_strategy: x\n  fsdp_reshard_after_forward: true\n",
                 {"fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_reshard_after_forward"});
    expect_noted(accelerate + "DEEPSPEED\ndeepspeed_config:\n  zero_stage: 9\n  offload_optimizer_nvme_path: 5\n",
                 {"deepspeed_config.zero_stage", "deepspeed_config.offload_optimizer_nvme_path"});
    expect_noted(R"({"output_dir": "o", "learning_rate": 1, "save_steps": "x", "eval_strategy": 5, "ddp_timeout": "x",
                     "fsdp": ["offload", 5], "fsdp_config": 5, "deepspeed": 5})",
                 {"save_steps", "eval_strategy", "ddp_timeout", "fsdp", "fsdp_config", "deepspeed"});
    const auto notes = notes_of(translate(R"({"zero_optimization": "two"})"));
    EXPECT_EQ(notes.at("zero_optimization"), "must be an object; ignored");
}

// What such a file says of sharding when nothing is understood is nothing.
TEST(OtherConfigTest, AnUnknownWordOfFsdpSetsNoSharding) {
    EXPECT_FALSE(translate("mixed_precision: no\ndistributed_type: FSDP\nfsdp_config:\n"
                           "  fsdp_reshard_after_forward: nonsense\n")
                     .settings.contains("sharding"));
}

TEST(OtherConfigTest, AccelerateIsReadWithFsdpAndDeepSpeed) {
    EXPECT_EQ(translate(text_of("accelerate_fsdp.yaml")).settings,
              Json::parse(R"({"sharding": "hybrid_shard", "offload_params": "cpu", "activation_checkpointing": "full",
                              "precision": "bf16"})"));
    EXPECT_EQ(translate(text_of("accelerate_fsdp2.yaml")).settings,
              Json::parse(R"({"sharding": "shard_grad_op", "precision": "fp32"})"));
    const TranslatedConfig made = translate(text_of("accelerate_deepspeed.yaml"));
    EXPECT_EQ(made.settings,
              Json::parse(R"({"sharding": "shard_optimizer", "offload_optimizer": "cpu", "precision": "fp16",
        "offload_params": "none", "grad_accum": 4, "max_grad_norm": 0.5})"));
    const auto notes = notes_of(made);
    EXPECT_NE(notes.at("num_processes").find("mpirun"), std::string::npos);
    EXPECT_EQ(notes.at("tpu_env"), "has no counterpart");
    EXPECT_EQ(std::ranges::count(made.defaults, "debug"), 1);
}

TEST(OtherConfigTest, WordsOfFlagsAreAnsweredInFilesToo) {
    const auto notes = notes_of(translate(R"({"output_dir": "out", "learning_rate": 0.1, "lora_r": 16, "packing": true,
                                              "some_word": 1})"));
    EXPECT_NE(notes.at("lora_r").find("--lora-rank"), std::string::npos) << notes.at("lora_r");
    EXPECT_EQ(notes.at("some_word"), "has no counterpart");
}

// make_other_config_goldens.py had transformers write them.
TEST(OtherConfigTest, ArgumentsOfTransformersSayTheirDefaultsAndHaveNothingToNote) {
    const TranslatedConfig made = translate(text_of("training_arguments.json"));
    EXPECT_EQ(made.settings,
              Json::parse(R"({"out": "out", "batch_size": 8, "grad_accum": 1, "epochs": 3, "optimizer": "adamw",
        "lr": 5e-5, "schedule": "linear", "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "max_grad_norm": 1.0,
        "seed": 42, "save_every": 500})"));
    EXPECT_EQ(keys_of(notes_of(made)), std::vector<std::string>());
    EXPECT_EQ(std::ranges::count(made.defaults, "logging_steps"), 1);
}

TEST(OtherConfigTest, ArgumentsOfTransformersAreTranslatedOrNoted) {
    const TranslatedConfig made = translate(text_of("training_arguments_said.json"));
    EXPECT_EQ(made.settings,
              Json::parse(R"({"out": "out", "batch_size": 2, "grad_accum": 4, "steps": 1000, "optimizer": "adamw",
        "lr": 2e-5, "schedule": "cosine", "warmup_steps": 30, "warmup_from_zero": "on", "weight_decay": 0.1, "no_decay_norms": true, "beta1": 0.9,
        "beta2": 0.95, "eps": 1e-8, "max_grad_norm": 0.5, "seed": 7, "save_every": 200, "eval_every": 50, "precision": "bf16",
        "activation_checkpointing": "full"})"));
    EXPECT_EQ(keys_of(notes_of(made)), (std::vector<std::string>{"label_smoothing_factor", "logging_steps"}));
    const TranslatedConfig by_epoch = translate(text_of("training_arguments_epochs.json"));
    EXPECT_EQ(by_epoch.settings["save_every"], "epoch");
    const auto notes = notes_of(by_epoch);
    EXPECT_EQ(keys_of(notes),
              (std::vector<std::string>{"lr_scheduler_type", "neftune_noise_alpha", "num_train_epochs", "optim"}));
    const TranslatedConfig best = translate(R"({"output_dir": "o", "learning_rate": 1e-4, "eval_strategy": "epoch",
        "load_best_model_at_end": true, "metric_for_best_model": "bleu", "greater_is_better": true})");
    EXPECT_EQ(best.settings["eval_every"], "epoch");
    EXPECT_EQ(best.settings["save_best"], true);
    EXPECT_EQ(notes_of(best).count("metric_for_best_model"), 1U);
    EXPECT_EQ(
        notes_of(
            translate(
                R"({"output_dir": "o", "learning_rate": 1e-4, "load_best_model_at_end": true, "metric_for_best_model": "loss",
        "greater_is_better": false})"))
            .count("metric_for_best_model"),
        0U);
    const auto short_file = translate(R"({"learning_rate": 1e-4, "output_dir": "o", "warmup_ratio": 0.1, "fsdp":
        "full_shard auto_wrap offload", "deepspeed": {"zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}})");
    EXPECT_EQ(short_file.settings["batch_size"], 8);
    EXPECT_EQ(short_file.settings["sharding"], "shard_grad_op");
    EXPECT_EQ(short_file.settings["offload_params"], "cpu");
    EXPECT_FALSE(short_file.settings.contains("max_grad_norm"));
    EXPECT_TRUE(notes_of(short_file).contains("warmup_ratio"));
}

// transformers fills them from its own arguments, which are translated.
TEST(OtherConfigTest, WhatIsAutoInTheDeepSpeedOfArgumentsIsTheirs) {
    const auto made = translate(R"({"output_dir": "o", "learning_rate": 1e-4, "per_device_train_batch_size": 4,
        "bf16": true, "max_grad_norm": "auto", "deepspeed": {"train_micro_batch_size_per_gpu": "auto",
        "train_batch_size": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto",
        "eps": "auto", "weight_decay": "auto"}}, "zero_optimization": {"stage": 2}}})");
    EXPECT_EQ(keys_of(notes_of(made)), std::vector<std::string>{"max_grad_norm"});
    EXPECT_EQ(made.settings["batch_size"], 4);
    EXPECT_EQ(made.settings["lr"], 1e-4);
    EXPECT_EQ(made.settings["precision"], "bf16");
}

TEST(OtherConfigTest, AValueOfAWrongTypeIsRefusedByItsOwnKey) {
    const auto fault = [](const std::string& text) {
        const auto made = translate_config(recognize_config(text).value());
        return made.ok() ? std::string() : made.error().field;
    };
    EXPECT_EQ(fault(R"({"zero_optimization": {"stage": 1}, "train_batch_size": "many"})"), "train_batch_size");
    EXPECT_EQ(fault(R"({"bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"betas": [2, 0.9]}}})"),
              "optimizer.params.betas");
    EXPECT_EQ(fault(R"({"output_dir": "o", "learning_rate": -1})"), "learning_rate");
    const auto said = [](const std::string& text) {
        return describe(translate_config(recognize_config(text).value()).error());
    };
    EXPECT_EQ(said(R"({"output_dir": "o", "learning_rate": 1, "max_grad_norm": -1})"),
              "max_grad_norm: '-1' is out of range: must be from 0 to 1e+12");
    EXPECT_EQ(said(R"({"zero_optimization": {"stage": 1}, "gradient_clipping": -1})"),
              "gradient_clipping: is max_grad_norm here: '-1' is out of range: must be from 0 to 1e+12");
    EXPECT_EQ(fault(R"({"output_dir": "o", "learning_rate": 1, "max_steps": 1.5})"), "max_steps");
    EXPECT_EQ(fault(R"({"output_dir": "o", "learning_rate": 1, "warmup_steps": 1e60})"), "warmup_steps");
    EXPECT_EQ(fault(R"({"output_dir": "o", "learning_rate": 1, "save_steps": 1e60})"), "save_steps");
    EXPECT_EQ(fault(R"({"output_dir": "o", "learning_rate": 1, "save_steps": 20.5})"), "save_steps");
}

TEST(OtherConfigTest, AWarmUpOfMoreThanAllStepsIsNoted) {
    for (const char* ratio : {"1.5", "1e18", "1e60"}) {
        const auto made =
            translate(R"({"output_dir": "o", "max_steps": 1000, "warmup_ratio": )" + std::string(ratio) + "}");
        EXPECT_FALSE(made.settings.contains("warmup_steps")) << ratio;
        EXPECT_TRUE(notes_of(made).contains("warmup_ratio")) << ratio;
    }
}

TEST(OtherConfigTest, ARunJsonIsNobodysFile) {
    for (const char* text : {R"({"lr": 1e-4, "learning_rate": 1, "output_dir": 2})", "{}", "[]", "", "x", "a: 1",
                             R"({"learning_rate": 1e-4})", R"({"steps": 3, "bf16": true})", "{\"lr\": "})
        EXPECT_FALSE(recognize_config(text)) << text;
}

TEST(OtherConfigTest, AFileOfAnotherProgramGivenAsOursIsTold) {
    for (const char* name : {"deepspeed_zero3.json", "accelerate_fsdp.yaml", "training_arguments.json"}) {
        RunConfig config;
        const Status status = assign_file(config, kOtherConfigs / name, kTrain);
        ASSERT_FALSE(status.ok()) << name;
        EXPECT_NE(status.error().message.find("config-from " + (kOtherConfigs / name).string()), std::string::npos)
            << status.error().message;
        EXPECT_TRUE(status.error().field.starts_with("--config")) << status.error().field;
    }
}

TEST(OtherConfigTest, YamlIsReadAsPyYamlDoesButNumbersAreThoseOfJson) {
    const auto read = parse_simple_yaml(
        "--- # begin\na: 1\nb: -2.5\nc: 'no'\nd: no\ne: ~\nf:\ng: {}\nh: []\n# comment\n"
        "i:\n  j: \"x # y\"\n  k:\n    l: true # yes\nm:\n- 1\n- two\nn: http://x\no: 1e-5\np: 1_000\nq: +5\n");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, Json::parse(R"({"a": 1, "b": -2.5, "c": "no", "d": false, "e": null, "f": null, "g": {}, "h": [],
        "i": {"j": "x # y", "k": {"l": true}}, "m": [1, "two"], "n": "http://x", "o": 1e-5, "p": "1_000", "q": "+5"})"));
    EXPECT_TRUE(parse_simple_yaml("").ok());
    for (const auto& [text, line] : std::vector<std::pair<const char*, const char*>>{{"a: 1\na: 2", "line 2"},
                                                                                     {"a: &x 1", "line 1"},
                                                                                     {"a: |\n  x", "line 1"},
                                                                                     {"a: [1, 2]", "line 1"},
                                                                                     {"a: 1\n  b: 2", "line 2"},
                                                                                     {"a:\n    b: 1\n  c: 2", "line 3"},
                                                                                     {"a\n", "line 1"},
                                                                                     {"\ta: 1", "line 1"},
                                                                                     {"a: 'x", "line 1"},
                                                                                     {"a:\n- b: 1", "line 2"}}) {
        const auto wrong = parse_simple_yaml(text);
        ASSERT_FALSE(wrong.ok()) << text;
        EXPECT_NE(wrong.error().message.find(line), std::string::npos) << text << ": " << wrong.error().message;
    }
    std::string deep;
    for (int depth = 0; depth < 40; ++depth) deep += std::string(static_cast<std::size_t>(depth), ' ') + "a:\n";
    EXPECT_FALSE(parse_simple_yaml(deep).ok());
}

TEST(OtherConfigFuzzTest, NoMutationOfAFileMakesARunConfigurationThatTrainRefuses) {
    std::mt19937 random(11);
    const auto below = [&](std::size_t count) {
        return static_cast<std::size_t>(random() % std::max<std::size_t>(count, 1));
    };
    int translated = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kOtherConfigs)) {
        const std::string whole = read_file(entry.path()).value();
        for (int i = 0; i < 600; ++i) {
            std::string bytes = whole;
            for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
                const std::size_t at = below(bytes.size());
                switch (below(4)) {
                    case 0:
                        bytes[at] = static_cast<char>(random());
                        break;
                    case 1:
                        bytes.erase(at, 1 + below(8));
                        break;
                    case 2:
                        bytes.insert(at, whole, below(whole.size()), 1 + below(32));
                        break;
                    default:
                        bytes[at] = "0123456789-.e\"tfn"[below(17)];
                }
            }
            LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
            const auto other = recognize_config(bytes);
            translated += other && translate_config(*other).ok();
        }
    }
    EXPECT_GT(translated, 500);  // the changes are small enough to be read
}

}  // namespace
}  // namespace atl::run_settings
