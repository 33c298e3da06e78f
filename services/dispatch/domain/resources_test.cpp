#include "services/dispatch/domain/resources.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

const Json kWhole = {{"queue", "gpu"},     {"nodes", 2},         {"tasks_per_node", 4}, {"cores_per_task", 8},
                     {"gpus_per_node", 4}, {"memory", "480GiB"}, {"time", "2:00:00"}};

TEST(ResourcesTest, ComeBackAsTheyWereSaid) {
    const auto resources = parse_resources(kWhole, "resources");
    ASSERT_TRUE(resources.ok()) << resources.error().message;
    EXPECT_EQ(to_json(*resources), kWhole);
    EXPECT_EQ(resources->ranks(), 8);
    EXPECT_EQ(resources->memory_mib, 480 * 1024);
    EXPECT_EQ(resources->time_s, 7200);
}

TEST(ResourcesTest, WhatIsWrongIsNamed) {
    for (const auto& [key, value] : std::map<std::string, Json>{{"nodes", 0},
                                                                {"tasks_per_node", 0},
                                                                {"memory", "480"},
                                                                {"memory", "0GiB"},
                                                                {"time", "soon"},
                                                                {"time", "-1:00"},
                                                                {"gpus", 4},
                                                                {"memory", "99999999TiB"}}) {
        Json wrong = kWhole;
        wrong[key] = value;
        EXPECT_EQ(parse_resources(wrong, "resources").error().field, "resources." + key) << value;
    }
}

TEST(ResourcesTest, TimesAreThoseOfSlurm) {
    const std::map<std::string, std::int64_t> times = {{"90", 5400},     {"90:30", 5430},     {"2:00:00", 7200},
                                                       {"1-12", 129600}, {"1-06:30", 109800}, {"1-00:00:01", 86401}};
    for (const auto& [text, seconds] : times) EXPECT_EQ(parse_time(text, "time").value(), seconds) << text;
    EXPECT_EQ(time_text(5430), "1:30:30");
    EXPECT_EQ(time_text(109800), "1-06:30:00");
    for (const char* text : {"", ":", "1:2:3:4", "1-2-3", "a", "1:b", "0", "9999999999"})
        EXPECT_FALSE(parse_time(text, "time").ok()) << text;
}

}  // namespace
}  // namespace atl::dispatch
