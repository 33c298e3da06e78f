#include "shared/metrics/metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "shared/metrics/common.h"
#include "shared/metrics/process.h"
#include "shared/metrics/reference.h"

namespace atl::metrics {
namespace {

constexpr Table kTable{
    Metric{"atoll_jobs_total", Type::kCounter, "", "Jobs that ended", {"state"}},
    Metric{"atoll_open", Type::kGauge, "", "What is open", {"state"}},
    Metric{"atoll_work_seconds", Type::kHistogram, "seconds", "Time of work"},
    Metric{"atoll_wait_seconds", Type::kHistogram, "seconds", "Time of waiting", {}, Buckets::kWeek},
};

TEST(MetricsTest, TheSameNameAndLabelsGiveTheSameCounter) {
    Registry registry;
    registry.counter(kTable["atoll_jobs_total"], {{"state", "done"}}).Increment();
    registry.counter(kTable["atoll_jobs_total"], {{"state", "done"}}).Increment(2);
    registry.counter(kTable["atoll_jobs_total"], {{"state", "failed"}}).Increment();
    const std::string text = registry.expose();
    EXPECT_NE(text.find("atoll_jobs_total{state=\"done\"} 3"), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_jobs_total{state=\"failed\"} 1"), std::string::npos) << text;
}

TEST(MetricsTest, AHistogramHasTheBucketsOfItsRow) {
    Registry registry;
    registry.histogram(kTable["atoll_work_seconds"]).Observe(0.002);
    registry.histogram(kTable["atoll_wait_seconds"]).Observe(100'000);
    const std::string text = registry.expose();
    EXPECT_NE(text.find("atoll_work_seconds_bucket{le=\"0.001\"} 0"), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_work_seconds_bucket{le=\"60\"} 1"), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_wait_seconds_bucket{le=\"86400\"} 0"), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_wait_seconds_bucket{le=\"604800\"} 1"), std::string::npos) << text;
}

TEST(MetricsTest, WhatIsSetAllTogetherServesNothingElse) {
    Registry registry;
    registry.set_all(kTable["atoll_open"], {{{{"state", "a"}}, 1}, {{{"state", "b"}}, 2}});
    registry.set_all(kTable["atoll_open"], {{{{"state", "b"}}, 3}});
    std::string text = registry.expose();
    EXPECT_EQ(text.find("state=\"a\""), std::string::npos) << text;
    EXPECT_NE(text.find("atoll_open{state=\"b\"} 3"), std::string::npos) << text;
    registry.set_all(kTable["atoll_open"], {{{{"state", "a"}}, 4}});
    text = registry.expose();
    EXPECT_NE(text.find("atoll_open{state=\"a\"} 4"), std::string::npos) << text;
    EXPECT_EQ(text.find("state=\"b\""), std::string::npos) << text;
}

TEST(MetricsTest, EachRowIsServedWithItsHelpAndTypeThoughItHasNoSeries) {
    Registry registry;
    registry.counter(kTable["atoll_jobs_total"], {{"state", "done"}});
    const std::span<const Metric> tables[] = {kTable.rows};
    const std::string text = registry.expose(tables);
    for (const Metric& row : kTable.rows) {
        const std::string name(row.name);
        const auto at = text.find("# HELP " + name + " " + std::string(row.help) + "\n# TYPE " + name + " ");
        ASSERT_NE(at, std::string::npos) << name << " in " << text;
        EXPECT_EQ(text.find("# HELP " + name + " ", at + 1), std::string::npos) << name << " is there twice";
    }
}

TEST(MetricsTest, WhatIsOnlyLookedAtWhenItIsAskedForIsNew) {
    Registry registry;
    int looks = 0;
    registry.on_expose([&] { registry.gauge(kTable["atoll_open"], {{"state", "a"}}).Set(++looks); });
    EXPECT_NE(registry.expose().find("} 1\n"), std::string::npos);
    EXPECT_NE(registry.expose().find("} 2\n"), std::string::npos);
}

TEST(MetricsTest, OfTheProcessTimeMemoryAndFilesAreKnown) {
    Registry registry;
    add_process(registry);
    const std::string text = registry.expose();
    for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
                             "process_threads", "process_max_fds", "process_virtual_memory_bytes"})
        EXPECT_NE(text.find("\n" + std::string(name) + " "), std::string::npos) << name;
    EXPECT_EQ(text.find("process_resident_memory_bytes 0\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("process_threads 0\n"), std::string::npos) << text;
    const auto started = text.find("\nprocess_start_time_seconds ");
    ASSERT_NE(started, std::string::npos);
    const double start_s = std::strtod(text.c_str() + started + 28, nullptr);
    EXPECT_NEAR(start_s, static_cast<double>(std::time(nullptr)), 3600);
}

TEST(MetricsTest, ATablesFaultsAreNamed) {
    const Metric wrong[] = {
        {"jobs_total", Type::kCounter, "", "Jobs"},     {"atoll_jobs", Type::kCounter, "", "Jobs"},
        {"atoll_open_total", Type::kGauge, "", "Open"}, {"atoll_lag", Type::kGauge, "seconds", "Lag"},
        {"atoll_Jobs", Type::kGauge, "", "Jobs"},       {"atoll_ended", Type::kGauge, "", "Jobs", {"job_id"}},
        {"atoll_told", Type::kGauge, "", "Jobs."},      {"atoll_sizes_bytes", Type::kHistogram, "bytes", "Sizes"},
    };
    for (const Metric& row : wrong) EXPECT_EQ(table_faults({&row, 1}).size(), 1U) << row.name;
    const Metric twice[] = {kTable.rows[0], kTable.rows[0]};
    EXPECT_EQ(table_faults(twice).size(), 1U);
    EXPECT_TRUE(table_faults(kTable.rows).empty());
    EXPECT_TRUE(table_faults(kCommon.rows).empty());
    EXPECT_TRUE(table_faults(kInbox.rows).empty());
}

}  // namespace
}  // namespace atl::metrics
