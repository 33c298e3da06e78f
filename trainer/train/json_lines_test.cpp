#include "trainer/train/json_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::train {
namespace {

TEST(JsonLinesTest, AShareAboveThePeakIsNotPrinted) {
    StepMetrics metrics;
    metrics.mfu = 0.9;
    metrics.hfu = 1.2;
    const auto line = nlohmann::json::parse(to_json_line(metrics));
    EXPECT_EQ(line["mfu"], 0.9);
    EXPECT_TRUE(line["hfu"].is_null()) << line;
    metrics.mfu = 1.01;
    EXPECT_TRUE(nlohmann::json::parse(to_json_line(metrics))["mfu"].is_null());
}

TEST(JsonLinesTest, WithoutTargetsThereIsNoLoss) {
    EXPECT_TRUE(nlohmann::json::parse(to_json_line(StepMetrics()))["loss"].is_null());
    Summary summary;
    EXPECT_TRUE(nlohmann::json::parse(to_json_line(summary))["loss"].is_null());
    EXPECT_TRUE(nlohmann::json::parse(to_json_line(summary))["final_loss"].is_null());
    summary.loss = 0;
    EXPECT_EQ(nlohmann::json::parse(to_json_line(summary))["loss"], 0.0);
}

}  // namespace
}  // namespace atl::train
