#include "shared/metrics/metrics.h"

#include <gtest/gtest.h>

namespace atl::metrics {
namespace {

TEST(MetricsTest, TheSameNameAndLabelsGiveTheSameCounter) {
    Registry registry;
    registry.counter("jobs_total", "Jobs.", {{"state", "done"}}).Increment();
    registry.counter("jobs_total", "Jobs.", {{"state", "done"}}).Increment(2);
    registry.counter("jobs_total", "Jobs.", {{"state", "failed"}}).Increment();
    const std::string text = registry.expose();
    EXPECT_NE(text.find("jobs_total{state=\"done\"} 3"), std::string::npos) << text;
    EXPECT_NE(text.find("jobs_total{state=\"failed\"} 1"), std::string::npos) << text;
}

TEST(MetricsTest, SecondsHasBucketsFromOneMillisecondToOneMinute) {
    Registry registry;
    registry.seconds("work_seconds", "Work.").Observe(0.002);
    const std::string text = registry.expose();
    EXPECT_NE(text.find("work_seconds_bucket{le=\"0.001\"} 0"), std::string::npos) << text;
    EXPECT_NE(text.find("work_seconds_bucket{le=\"60\"} 1"), std::string::npos) << text;
}

TEST(MetricsTest, AGaugeGoesUpAndDown) {
    Registry registry;
    registry.gauge("open", "Open.").Set(3);
    registry.gauge("open", "Open.").Decrement();
    EXPECT_NE(registry.expose().find("open 2"), std::string::npos);
}

}  // namespace
}  // namespace atl::metrics
