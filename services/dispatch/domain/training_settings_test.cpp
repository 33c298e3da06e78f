#include "services/dispatch/domain/training_settings.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

using json::Json;

Json read_json(const std::string& file) {
    return json::parse(read_file(file).value()).value();
}

Status check(const Json& settings) {
    const auto parsed = parse_training_settings(settings, "training");
    return parsed.ok() ? Status() : Status(parsed.error());
}

std::string refused_field(const Json& settings, std::int64_t ranks = 1) {
    Status status = check(settings);
    if (status.ok()) status = check_training_together(settings, {}, ranks, "participants[0].training");
    return status.ok() ? "" : status.error().field;
}

// The trainer's own test walks the same cases: shared/run_settings/run_settings_test.cpp.
TEST(TrainingSettingsTest, TheSharedCasesAreAnsweredAsTheTrainerAnswersThem) {
    for (const Json& one : read_json(ATOLL_FIXTURES "/run_settings_cases.json")) {
        const std::string refused = one.value("refused", "");
        EXPECT_EQ(refused_field(one.at("settings"), one.at("ranks")), refused.empty() ? "" : "training." + refused)
            << one;
    }
}

TEST(TrainingSettingsTest, EveryKeyOfTheTrainersIsAJobsOrRefusedWithTheReason) {
    for (const run_settings::Option& option : run_settings::options()) {
        const std::string key = option.key();
        const Status wrong = check({{key, Json::array()}});
        ASSERT_FALSE(wrong.ok()) << key;
        EXPECT_EQ(wrong.error().field, "training." + key);
    }
    EXPECT_EQ(check({{"save_best", true}}).error().message,
              "keeps a model that no round hands in: leave it out of a job");
    for (const std::string key : {"model", "data", "out", "val_data", "adapter"})
        EXPECT_EQ(check({{key, "x"}}).error().field, "training." + key);
    for (const std::string key :
         {"update_base", "rounding_error_name", "rounding_error_from", "rounding_error_if_named"}) {
        const auto status = check({{"update_format", "int4"}, {key, "x"}});
        EXPECT_EQ(status.error().field, "training." + key);
        EXPECT_NE(status.error().message.find("is set by dispatch"), std::string::npos) << status.error().message;
    }
    for (const std::string key :
         {"control_variate", "control_variate_name", "control_variate_from", "control_variate_if_named"}) {
        const auto status = check({{key, "x"}});
        EXPECT_EQ(status.error().field, "training." + key);
        EXPECT_NE(status.error().message.find("is set by dispatch"), std::string::npos) << status.error().message;
    }
    EXPECT_EQ(check({{"offload_dir", "/tmp"}}).error().field, "training.offload_dir");
    EXPECT_EQ(check({{"loss_tokens_min", 0}}).error().field, "training.loss_tokens_min");
}

TEST(TrainingSettingsTest, WordsOfOtherProgramsAreAnsweredWithOurs) {
    const auto refused = [](const char* key) { return describe(check({{key, 1}}).error()); };
    EXPECT_EQ(refused("learning_rate"), "training.learning_rate: is lr here");
    EXPECT_EQ(refused("gradient_accumulation_steps"), "training.gradient_accumulation_steps: is grad_accum here");
    EXPECT_EQ(refused("output_dir"), "training.output_dir: is set by dispatch, not by a job");
    for (const std::string key : {"num_gpus", "nproc_per_node", "num_processes", "nnodes"})
        EXPECT_EQ(refused(key.c_str()), "training." + key +
                                            ": is the participant's: its resources (nodes, tasks_per_node) or ranks "
                                            "say how many ranks train");
}

TEST(TrainingSettingsTest, AdaptersAreTheJobsAndOtherSettingsOfTheirsNeedThem) {
    EXPECT_EQ(refused_field({{"steps", 1}, {"lora_rank", 8}, {"quantize", "nf4"}, {"lora_targets", "q_proj"}}, 1), "");
    EXPECT_EQ(refused_field({{"steps", 1}, {"quantize", "nf4"}}, 1), "training.quantize");
    EXPECT_EQ(refused_field({{"steps", 1}, {"quantize", "none"}}, 1), "");
    EXPECT_EQ(refused_field({{"steps", 1}, {"lora_alpha", 8}}, 1), "training.lora_alpha");
    for (const char* key : {"lora_rank", "lora_targets", "quantize"})
        EXPECT_EQ(check_own_settings({{"lr", 1}, {key, 8}}, "participants[0].training").error().field,
                  std::string("participants[0].training.") + key);
    EXPECT_TRUE(check_own_settings({{"lr", 1}}, "").ok());
}

TEST(TrainingSettingsTest, UpdatesMayBeChangesAlsoOfOneParticipantAlone) {
    EXPECT_EQ(refused_field({{"steps", 1}, {"update_format", "int4"}}), "");
    EXPECT_EQ(refused_field({{"steps", 1}, {"update_format", "int8"}, {"lora_rank", 8}}), "");
    EXPECT_EQ(refused_field({{"steps", 1}, {"update_format", "int2"}}), "training.update_format");
    EXPECT_EQ(refused_field({{"steps", 1}, {"update_format", "int4"}, {"save_dtype", "bf16"}}), "training.save_dtype");
    EXPECT_TRUE(check_own_settings({{"update_format", "int4"}}, "").ok());
}

TEST(TrainingSettingsTest, ATrainingValidatesWhereItSaysHowOften) {
    EXPECT_TRUE(validates({{"steps", 3}, {"eval_every", 0}})) << "at its end";
    EXPECT_FALSE(validates({{"steps", 3}}));
    EXPECT_FALSE(validates(nullptr));
    EXPECT_EQ(refused_field({{"steps", 3}, {"eval_every", 0}, {"val_samples", 64}}), "");
    const Error alone = check_training_together({{"steps", 3}, {"val_samples", 64}}, {}, 1, "").error();
    EXPECT_EQ(alone.field, "training.val_samples");
    EXPECT_TRUE(alone.message.starts_with("means nothing without eval_every")) << alone.message;
    const Error few = check({{"eval_every", 1}, {"val_samples", 65}}).error();
    EXPECT_EQ(describe(few), "training.val_samples: must be a multiple of 64");
}

TEST(TrainingSettingsTest, AStateIsSavedByTimeWhereTheJobSaysNothingOfStates) {
    EXPECT_EQ(save_by_time({{"steps", 4000}}), Json({{"steps", 4000}, {"save_interval", 600.0}}));
    for (const Json& own : {Json{{"save_every", 10}}, Json{{"save_every", 0}}, Json{{"save_interval", 60}}})
        EXPECT_EQ(save_by_time(own), own);
}

TEST(TrainingSettingsTest, WhatIsNotBuiltIsNamed) {
    for (const Json& settings :
         {Json{{"precision", "fp8"}}, Json{{"offload_params", "nvme"}}, Json{{"tp", 2}}, Json{{"pp", 2}}}) {
        const Status status = check(settings);
        ASSERT_FALSE(status.ok()) << settings;
        EXPECT_EQ(status.error().field, "training." + settings.begin().key());
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    }
    EXPECT_EQ(check({{"tp", 0}}).error().field, "training.tp");
    EXPECT_TRUE(check({{"tp", 1}}).ok());
    EXPECT_TRUE(check({{"offload_params", "cpu"}}).ok());
}

TEST(TrainingSettingsTest, MessagesSpellSettingsAsKeys) {
    const Error error = check_training_together({{"steps", 1}, {"loss_scale", 2}}, {}, 1, "").error();
    EXPECT_EQ(error.field, "training.loss_scale");
    for (const char* key : {"precision", "fp16"})
        EXPECT_NE(error.message.find(key), std::string::npos) << error.message;
}

TEST(TrainingSettingsTest, AMistypedKeyIsNamedWithTheOneThatWasMeant) {
    const Status status = check({{"step", 20}});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().field, "training.step");
    EXPECT_NE(status.error().message.find("steps"), std::string::npos) << status.error().message;
    const Error other = check({{"colour", 1}}).error();
    EXPECT_EQ(other.field, "training.colour");
    EXPECT_FALSE(other.message.ends_with("?")) << other.message;
}

TEST(TrainingSettingsTest, AParticipantsOwnSettingIsNamedWhereItStands) {
    const Json own = {{"epochs", 2}};
    const Json merged = merge_training_settings({{"steps", 20}}, own);
    EXPECT_EQ(check_training_together(merged, own, 1, "participants[1].training").error().field,
              "participants[1].training.epochs");
    EXPECT_EQ(check_training_together({{"steps", 0}}, {}, 1, "participants[1].training").error().field,
              "training.steps");
}

TEST(TrainingSettingsTest, TheTrainerStopsBeforeItsBatchJobIsEnded) {
    EXPECT_EQ(limit_time({{"steps", 3}}, 0), Json({{"steps", 3}}));
    EXPECT_EQ(limit_time({{"steps", 3}}, 7200), Json({{"steps", 3}, {"time_limit", 6900.0}}));
    EXPECT_EQ(limit_time({{"time_limit", 60}}, 7200), Json({{"time_limit", 60.0}}));
    EXPECT_EQ(limit_time({{"time_limit", 7000}}, 7200), Json({{"time_limit", 6900.0}}));
    EXPECT_EQ(limit_time(Json::object(), 60).at("time_limit"), 48.0);
}

}  // namespace
}  // namespace atl::dispatch
