#include "services/dispatch/domain/update_check.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

TEST(UpdateCheckTest, LimitsFollowFromTheSettingsAndTheDatasetVersion) {
    const Json settings = {{"steps", 20}, {"batch_size", 16}, {"grad_accum", 2}};
    EXPECT_EQ(update_limits(settings, 2, 1000, 128)->samples, 20 * 16 * 2 * 2);
    EXPECT_EQ(update_limits(settings, 2, 1000, 128)->tokens, 20 * 16 * 2 * 2 * 128);
    EXPECT_EQ(update_limits({{"steps", 20}, {"global_batch_size", 12}, {"batch_size", 3}}, 2, 1000, 8)->samples, 240);
    EXPECT_EQ(update_limits({{"steps", 5}}, 3, 1000, 8)->samples, 15) << "one row a rank";
    EXPECT_EQ(update_limits({{"epochs", 2}, {"batch_size", 16}}, 1, 1001, 8)->samples, 2016)
        << "the last step is whole";
}

TEST(UpdateCheckTest, CountsBeyondWhatIsPossibleAreRefused) {
    const UpdateLimits limits{320, 40960, 20};
    const auto summary = [](std::optional<std::int64_t> samples, std::optional<std::int64_t> tokens) {
        SummaryLine line;
        line.samples = samples;
        line.tokens = tokens;
        return line;
    };
    EXPECT_TRUE(check_counts(summary(320, 40960), limits).ok());
    EXPECT_TRUE(check_counts(summary(0, 0), UpdateLimits{320, 40960, 0}).ok());
    for (const SummaryLine& wrong : {summary(321, 1), summary(1, 40961), summary(std::nullopt, 1),
                                     summary(1, std::nullopt), summary(0, 0), summary(1, 0), summary(0, 1)})
        EXPECT_TRUE(is_refusal(check_counts(wrong, limits).error())) << to_json(wrong);
}

TEST(UpdateCheckTest, WhatIsAssignedIsTheSumOfTheRates) {
    const Json settings = {
        {"steps", 30}, {"warmup_steps", 5}, {"warmup_from_zero", "off"}, {"lr", 0.5}, {"weight_decay", 0.1}};
    const DatasetSize size{1000, 8};
    const auto work = assigned_work(settings, 1, size, {size, INT64_MAX});
    EXPECT_DOUBLE_EQ(work.effort, 0.5 * (3 + 25)) << "a fifth to five fifths, then 25 whole ones";
    EXPECT_EQ(work.element_max, work.effort);
    EXPECT_DOUBLE_EQ(work.decay, 0.1 * work.effort);
    EXPECT_EQ(work.tokens, 30 * 8);
    Json linear = {{"steps", 100}, {"lr", 1}, {"schedule", "linear"}};
    EXPECT_NEAR(assigned_work(linear, 1, size, {size, INT64_MAX}).effort, 50.5, 1e-9);
    linear.update({{"schedule_runs", 2}, {"schedule_run", 2}});
    EXPECT_NEAR(assigned_work(linear, 1, size, {size, INT64_MAX}).effort, 25.25, 1e-9)
        << "the second half of a longer one";
    EXPECT_EQ(assigned_work({{"epochs", 2}, {"batch_size", 10}, {"lr", 1}}, 1, size, {size, INT64_MAX}).effort, 200);
    const Json sgd = {{"steps", 3}, {"optimizer", "sgd"}, {"lr", 2}, {"momentum", 0.75}, {"max_grad_norm", 0.5}};
    EXPECT_EQ(assigned_work(sgd, 1, size, {size, INT64_MAX}).element_max, 0);
    EXPECT_EQ(assigned_work(sgd, 1, size, {size, INT64_MAX}).norm_max, 3 * 2 * 0.5 / (1 - 0.75));
    EXPECT_EQ(assigned_work({{"steps", -3}}, 1, size, {size, INT64_MAX}).effort, 1) << "settings of no trainer";
}

TEST(UpdateCheckTest, RowsThatASiteInventsBuyItLittle) {
    const Json epochs = {{"epochs", 2}, {"batch_size", 10}, {"lr", 1}};
    const BelievedSize believed = {{1000, 8}, 10'000};
    const auto work = assigned_work(epochs, 1, {100'000, 64}, believed);
    EXPECT_EQ(work.tokens, 2000 * 8) << "it weighs as if it had the thousand rows that the others have";
    EXPECT_EQ(work.effort, 2000) << "and is compared as if it had ten times as many";
    EXPECT_EQ(work.claimed, 10);
    EXPECT_EQ(work.element_max, 20'000) << "its optimizer can move what it can";
    EXPECT_EQ(assigned_work(epochs, 1, {100, 8}, believed).effort, 20);
    EXPECT_EQ(assigned_work(epochs, 1, {100, 8}, believed).claimed, 1);
    const Json steps = {{"steps", 30}, {"lr", 1}};
    EXPECT_EQ(assigned_work(steps, 1, {10'000, 8}, believed).effort, 30) << "steps are the job's word";
    EXPECT_EQ(assigned_work(steps, 1, {10'000, 8}, believed).claimed, 1);
}

TEST(UpdateCheckTest, ATrainingOnFewerRanksThanWereAskedForIsTold) {
    const auto limits = update_limits({{"steps", 5}, {"batch_size", 2}}, 4, 1000, 8).value();
    SummaryLine summary;
    summary.steps = 5;
    summary.samples = 40;
    EXPECT_TRUE(check_ranks(summary, limits, 4).ok());
    summary.samples = 10;
    EXPECT_NE(check_ranks(summary, limits, 4)
                  .error()
                  .message.find("saw 10 samples in 5 steps, where the 4 ranks that were asked for see 40"),
              std::string::npos);
    summary.steps.reset();
    EXPECT_TRUE(check_ranks(summary, limits, 4).ok()) << "it does not say";
}

TEST(UpdateCheckTest, TheStoreMustKnowAnUpdateOfTheBase) {
    const Json good = {{"kind", "update"}, {"parents", {"b"}}};
    EXPECT_TRUE(check_version(good, "b", false).ok());
    EXPECT_TRUE(check_version({{"kind", "global"}, {"parents", {"b"}}}, "b", false).ok())
        << "once the only one of its round";
    EXPECT_TRUE(check_version({{"digest", "b"}, {"kind", "global"}, {"parents", {"a", "u"}}}, "b", false).ok())
        << "a training that changed nothing";
    for (const Json& wrong : {Json{{"digest", "u"}, {"kind", "global"}, {"parents", {"a", "u"}}},
                              Json{{"kind", "base"}, {"parents", {"b"}}}, Json{{"kind", "update"}, {"parents", {"a"}}},
                              Json{{"kind", "update"}, {"parents", {"b", "a"}}},
                              Json{{"kind", "update"}, {"parents", Json::array()}}, Json{{"kind", "update"}}})
        EXPECT_TRUE(is_refusal(check_version(wrong, "b", false).error())) << wrong;
    for (const Json& unreadable : {Json("update"), Json{{"digest", 7}, {"kind", "update"}, {"parents", {"b"}}},
                                   Json{{"kind", "update"}, {"parents", "b"}}})
        EXPECT_EQ(check_version(unreadable, "b", false).error().code, ErrorCode::kInternal) << unreadable;
}

TEST(UpdateCheckTest, AChangeIsRefusedWhereTheJobAsksForModels) {
    const auto with = [](const char* path) {
        return Json{{"kind", "update"}, {"parents", {"b"}}, {"manifest", {{"files", {{{"path", path}}}}}}};
    };
    EXPECT_TRUE(check_version(with("model.safetensors"), "b", false).ok());
    EXPECT_TRUE(check_version(with("delta.safetensors"), "b", true).ok());
    const Status unasked = check_version(with("delta.safetensors"), "b", false);
    ASSERT_TRUE(!unasked.ok() && is_refusal(unasked.error()));
    EXPECT_TRUE(unasked.error().message.starts_with("the update that was pushed has delta.safetensors, the change"))
        << unasked.error().message;
    EXPECT_TRUE(check_version({{"kind", "update"}, {"parents", {"b"}}, {"manifest", {{"files", 7}}}}, "b", false).ok());
}

}  // namespace
}  // namespace atl::dispatch
