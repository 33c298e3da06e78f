#include "services/dispatch/domain/training_settings.h"

#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

using json::Json;

Json read_json(const std::string& file) {
    return json::parse(read_file(file).value()).value();
}

std::string refused_field(const Json& settings, std::int64_t ranks = 1) {
    Status status = check_training_settings(settings, "training");
    if (status.ok()) status = check_training_together(settings, {}, ranks, "participants[0].training");
    return status.ok() ? "" : status.error().field;
}

// The trainer's own test walks the same cases: trainer/train/settings_table_test.cpp.
TEST(TrainingSettingsTest, TheSharedCasesAreAnsweredAsTheTrainerAnswersThem) {
    for (const Json& one : read_json(ATOLL_FIXTURES "/run_settings_cases.json")) {
        const std::string refused = one.value("refused", "");
        EXPECT_EQ(refused_field(one.at("settings"), one.at("ranks")), refused.empty() ? "" : "training." + refused)
            << one;
    }
}

TEST(TrainingSettingsTest, EveryValueThatTheTrainerKnowsIsTakenExactlyIfItIsBuilt) {
    int built_values = 0;
    int unbuilt_values = 0;
    for (const Json& row : read_json(ATOLL_RUN_SETTINGS)) {
        const std::string key = row.at("key");
        if (key.starts_with("lora_") || key == "quantize") continue;
        for (const Json& value : row.value("choices", Json::array())) {
            const Json built = row.value("built", row.at("choices"));
            const bool is_built = std::find(built.begin(), built.end(), value) != built.end();
            const Status status = check_training_settings({{key, value}}, "training");
            EXPECT_EQ(status.ok(), is_built) << key << " " << value;
            EXPECT_EQ(status.ok() ? "training." + key : status.error().field, "training." + key);
            ++(is_built ? built_values : unbuilt_values);
        }
    }
    EXPECT_GT(built_values, 0);
    EXPECT_GT(unbuilt_values, 0);
}

TEST(TrainingSettingsTest, EveryKeyOfTheTrainersIsAJobsOrRefusedWithTheReason) {
    for (const Json& row : read_json(ATOLL_RUN_SETTINGS)) {
        const std::string key = row.at("key");
        const Status wrong = check_training_settings({{key, Json::array()}}, "training");
        ASSERT_FALSE(wrong.ok()) << key;
        EXPECT_EQ(wrong.error().field, "training." + key);
        if (!row.contains("min") || key.starts_with("lora_")) continue;
        const Json above = row["type"] == "integer" ? Json(std::int64_t{1} << 60) : Json(1e300);
        EXPECT_FALSE(check_training_settings({{key, above}}, "training").ok()) << key;
    }
    for (const char* key : {"model", "data", "out", "val_data", "adapter"})
        EXPECT_NE(check_training_settings({{key, "x"}}, "training").error().message.find("set by dispatch"),
                  std::string::npos)
            << key;
    for (const Json& settings : {Json{{"lora_rank", 8}}, Json{{"quantize", "nf4"}}})
        EXPECT_NE(check_training_settings(settings, "training").error().message.find("adapters as updates"),
                  std::string::npos)
            << settings;
    EXPECT_TRUE(check_training_settings({{"quantize", "none"}}, "training").ok());
    EXPECT_EQ(check_training_settings({{"offload_dir", "/tmp"}}, "training").error().field, "training.offload_dir");
}

TEST(TrainingSettingsTest, WhatIsNotBuiltIsNamedWithWhatIs) {
    for (const auto& [settings, field] :
         std::vector<std::pair<Json, std::string>>{{{{"device", "cuda"}}, "training.device"},
                                                   {{{"precision", "fp8"}}, "training.precision"},
                                                   {{{"offload_params", "nvme"}}, "training.offload_params"},
                                                   {{{"tp", 2}}, "training.tp"}}) {
        const Status status = check_training_settings(settings, "training");
        ASSERT_FALSE(status.ok()) << settings;
        EXPECT_EQ(status.error().field, field);
        EXPECT_NE(status.error().message.find("not built yet; the trainer has: "), std::string::npos)
            << status.error().message;
    }
}

TEST(TrainingSettingsTest, AMistypedKeyIsNamedWithTheOneThatWasMeant) {
    const Status status = check_training_settings({{"step", 20}}, "training");
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(describe(status.error()), "training.step: the trainer has no such setting; did you mean steps?");
    EXPECT_EQ(describe(check_training_settings({{"colour", 1}}, "training").error()),
              "training.colour: the trainer has no such setting");
}

TEST(TrainingSettingsTest, AParticipantsOwnSettingIsNamedWhereItStands) {
    const Json own = {{"epochs", 2}};
    const Json merged = merge_training_settings({{"steps", 20}}, own);
    EXPECT_EQ(check_training_together(merged, own, 1, "participants[1].training").error().field,
              "participants[1].training.epochs");
    EXPECT_EQ(check_training_together({{"steps", 0}}, {}, 1, "participants[1].training").error().field,
              "training.steps");
}

}  // namespace
}  // namespace atl::dispatch
