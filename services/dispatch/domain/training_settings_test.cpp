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
    for (const char* key : {"model", "data", "out", "val_data", "adapter"})
        EXPECT_NE(check({{key, "x"}}).error().message.find("set by dispatch"), std::string::npos) << key;
    for (const Json& settings : {Json{{"lora_rank", 8}}, Json{{"quantize", "nf4"}}})
        EXPECT_NE(check(settings).error().message.find("adapters as updates"), std::string::npos) << settings;
    EXPECT_TRUE(check({{"quantize", "none"}}).ok());
    EXPECT_EQ(check({{"offload_dir", "/tmp"}}).error().field, "training.offload_dir");
}

TEST(TrainingSettingsTest, WhatIsNotBuiltIsNamed) {
    for (const Json& settings :
         {Json{{"precision", "fp8"}}, Json{{"offload_params", "nvme"}}, Json{{"tp", 2}}, Json{{"pp", 2}}}) {
        const Status status = check(settings);
        ASSERT_FALSE(status.ok()) << settings;
        EXPECT_EQ(status.error().field, "training." + settings.begin().key());
        EXPECT_NE(status.error().message.find("is not built yet"), std::string::npos) << status.error().message;
    }
    EXPECT_EQ(describe(check({{"tp", 0}}).error()), "training.tp: '0' is out of range: must be from 1 to 1000000");
    EXPECT_TRUE(check({{"tp", 1}}).ok());
}

TEST(TrainingSettingsTest, MessagesSpellSettingsAsKeys) {
    EXPECT_EQ(describe(check_training_together({{"steps", 1}, {"loss_scale", 2}}, {}, 1, "").error()),
              "training.loss_scale: means nothing without precision fp16");
}

TEST(TrainingSettingsTest, AMistypedKeyIsNamedWithTheOneThatWasMeant) {
    const Status status = check({{"step", 20}});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(describe(status.error()), "training.step: there is no such setting; did you mean steps?");
    EXPECT_EQ(describe(check({{"colour", 1}}).error()), "training.colour: there is no such setting");
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
