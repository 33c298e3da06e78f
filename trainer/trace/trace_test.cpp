#include "trainer/trace/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::trace {
namespace {

using nlohmann::json;

json events_of(const json& all, const std::string& phase) {
    json found = json::array();
    for (const json& event : all["traceEvents"])
        if (event["ph"] == phase) found.push_back(event);
    return found;
}

TEST(TraceTest, SpansNestAndTransfersGoOnBesideThem) {
    {
        const Span before("forward", "before");
    }
    start();
    {
        const Span step("step", "1");
        begin_transfer("gather", "layers.1", 1);
        begin_transfer("reduce", "layers.1", 1);
        {
            const Span block("forward", "layers.0");
        }
        end_transfer("gather", 1);
        end_transfer("gather", 7);
    }
    const json all = json::parse(finish(2, 4));
    const json spans = events_of(all, "X");
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_EQ(spans[0]["name"], "step 1");
    EXPECT_EQ(spans[1]["name"], "forward layers.0");
    EXPECT_EQ(spans[1]["cat"], "forward");
    EXPECT_EQ(spans[1]["pid"], 2);
    EXPECT_GE(spans[1]["ts"].get<double>(), spans[0]["ts"].get<double>());
    EXPECT_LE(spans[1]["ts"].get<double>() + spans[1]["dur"].get<double>(),
              spans[0]["ts"].get<double>() + spans[0]["dur"].get<double>());
    const json begun = events_of(all, "b"), ended = events_of(all, "e");
    ASSERT_EQ(begun.size(), 1U) << "that of the reduction was not waited for";
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(begun[0]["name"], "gather layers.1");
    EXPECT_EQ(begun[0]["id"], ended[0]["id"]);
    EXPECT_LE(begun[0]["ts"].get<double>(), ended[0]["ts"].get<double>());
    EXPECT_EQ(events_of(all, "M")[0]["args"]["name"], "rank 2 of 4");
    {
        const Span after("forward", "after");
    }
    start();
    EXPECT_EQ(events_of(json::parse(finish(0, 1)), "X").size(), 0U) << "what came before is gone";
}

TEST(TraceTest, WhatIsTooMuchIsCounted) {
    start();
    for (std::size_t i = 0; i < kEventsMax + 3; ++i) const Span span("forward");
    const std::string text = finish(0, 1);
    std::size_t spans = 0;
    for (std::size_t at = text.find(R"("ph":"X")"); at != std::string::npos; at = text.find(R"("ph":"X")", at + 1))
        ++spans;
    EXPECT_EQ(spans, kEventsMax);
    EXPECT_NE(text.find(R"("events_left_out":3})"), std::string::npos);
}

}  // namespace
}  // namespace atl::trace
