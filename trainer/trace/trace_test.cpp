#include "trainer/trace/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/on_device.h"

namespace atl::trace {
namespace {

using kernels::Stream;
using nlohmann::json;

const std::unique_ptr<kernels::Backend> cpu = kernels::make_cpu_backend(1).value();

json events_of(const json& all, const std::string& phase) {
    json found = json::array();
    for (const json& event : all["traceEvents"])
        if (event["ph"] == phase) found.push_back(event);
    return found;
}

// The names of the threads, by their numbers.
std::vector<std::string> rows_of(const json& all) {
    std::vector<std::string> names;
    for (const json& event : events_of(all, "M")) {
        if (event["name"] != "thread_name") continue;
        EXPECT_EQ(event["tid"], names.size());
        names.push_back(event["args"]["name"]);
    }
    return names;
}

double end_of(const json& span) {
    return span["ts"].get<double>() + span["dur"].get<double>();
}

TEST(TraceTest, SpansNestAndTransfersGoOnBesideThem) {
    {
        const Span before("forward", "before");
    }
    start(*cpu);
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
    EXPECT_TRUE(begun[0]["id2"]["local"].is_string()) << "an id would be that of any rank";
    EXPECT_EQ(begun[0]["id2"], ended[0]["id2"]);
    EXPECT_LE(begun[0]["ts"].get<double>(), ended[0]["ts"].get<double>());
    EXPECT_EQ(events_of(all, "M")[0]["args"]["name"], "rank 2 of 4");
    EXPECT_EQ(rows_of(all), (std::vector<std::string>{"host", "exchanges"}));
    EXPECT_EQ(spans[1]["tid"], 0);
    EXPECT_EQ(begun[0]["tid"], 1);
    {
        const Span after("forward", "after");
    }
    start(*cpu);
    EXPECT_EQ(events_of(json::parse(finish(0, 1)), "X").size(), 0U) << "what came before is gone";
}

TEST(TraceTest, WhatIsTooMuchIsCounted) {
    start(*cpu);
    for (std::size_t i = 0; i < kEventsMax + 3; ++i) const Span span("forward");
    const std::string text = finish(0, 1);
    std::size_t spans = 0;
    for (std::size_t at = text.find(R"("ph":"X")"); at != std::string::npos; at = text.find(R"("ph":"X")", at + 1))
        ++spans;
    EXPECT_EQ(spans, kEventsMax);
    EXPECT_NE(text.find(R"("events_left_out":3})"), std::string::npos);
}

TEST(TraceTest, OnTheCpuStreamsHaveNoSpansOfTheirOwn) {
    start(*cpu);
    {
        const StreamSpan span(Stream::kCompute, "forward");
    }
    take_times();
    EXPECT_EQ(events_of(json::parse(finish(0, 1)), "X").size(), 0U);
}

class DeviceTraceTest : public ::testing::TestWithParam<std::string> {
  protected:
    DeviceTraceTest() { std::fill_n(reinterpret_cast<float*>(pinned_.data()), 64, 1.0F); }

    // In, twice there, and out again, as one thing after another.
    void ask(const std::string& name) {
        const kernels::Tensor here(pinned_.data(), tensor::DType::kF32, {64});
        backend_->wait(Stream::kIn, last_);
        {
            const StreamSpan span(Stream::kIn, "copy in", name);
            backend_->transfer(Stream::kIn, here, there_.tensor);
        }
        backend_->wait(Stream::kCompute, backend_->record(Stream::kIn));
        for (const char* kind : {"forward", "backward"}) {
            const StreamSpan span(Stream::kCompute, kind, name);
            backend_->scale(there_.tensor, 2.0F);
        }
        backend_->wait(Stream::kOut, backend_->record(Stream::kCompute));
        {
            const StreamSpan span(Stream::kOut, "copy out", name);
            backend_->transfer(Stream::kOut, there_.tensor, here);
        }
        last_ = backend_->record(Stream::kOut);
    }

    std::unique_ptr<kernels::Backend> backend_ = kernels::make_tested_backend(GetParam());
    tensor::Memory pinned_ = backend_->allocate(kernels::Space::kPinned, 256).value();
    kernels::OnDevice<> there_{*backend_, {64}};
    kernels::Event last_;
};

TEST_P(DeviceTraceTest, WhatStreamsDoIsOnRowsOfTheirOwnWhenTheyDoIt) {
    start(*backend_);
    {
        const Span host("step", "1");
        ask("1");
        ask("2");
    }
    backend_->synchronize();
    take_times();
    ask("3");
    const json all = json::parse(finish(0, 1));
    EXPECT_EQ(rows_of(all), (std::vector<std::string>{"host", "exchanges", "device: computes", "device: copies in",
                                                      "device: copies out"}));
    const json spans = events_of(all, "X");
    std::vector<std::string> order;
    double before_us = 0;
    for (const json& span : spans) {
        if (span["tid"] == 0) continue;
        order.push_back(span["name"]);
        EXPECT_GE(span["ts"].get<double>(), before_us) << span << " waits for the one before";
        EXPECT_GE(span["dur"].get<double>(), 0);
        before_us = end_of(span);
    }
    EXPECT_EQ(order, (std::vector<std::string>{"copy in 1", "forward 1", "backward 1", "copy out 1",  //
                                               "copy in 2", "forward 2", "backward 2", "copy out 2",  //
                                               "copy in 3", "forward 3", "backward 3", "copy out 3"}));
    EXPECT_EQ(spans[0]["name"], "step 1");
    EXPECT_EQ(spans[1]["tid"], 3);
    EXPECT_EQ(spans[2]["tid"], 2);
    EXPECT_EQ(spans[4]["tid"], 4);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTraceTest, ::testing::ValuesIn([] {
                             std::vector<std::string> names = kernels::tested_backends();
                             std::erase_if(names, [](const std::string& name) {
                                 return name != kernels::kFar && name != kernels::kGpu;
                             });
                             return names;
                         }()),
                         [](const auto& instance) { return instance.param; });

// A device that does what it is asked for when the host waits for it shows what is a wait.
TEST(TraceTest, OnADeviceTheHostWaitsAtTheBeginningAndAtTheEndAlone) {
    kernels::FarBackend far(kernels::make_cpu_backend(1).value());
    const kernels::OnDevice<> there(far, {64});
    start(far);
    const int begun = far.host_waits();
    for (int step = 1; step <= 3; ++step) {
        {
            const StreamSpan span(Stream::kCompute, "forward", std::to_string(step));
            far.scale(there.tensor, 2.0F);
        }
        take_times();
    }
    EXPECT_EQ(far.host_waits(), begun);
    const json spans = events_of(json::parse(finish(0, 1)), "X");
    ASSERT_EQ(spans.size(), 3U);
    for (std::size_t i = 1; i < 3; ++i) EXPECT_GE(spans[i]["ts"].get<double>(), end_of(spans[i - 1]));
}

}  // namespace
}  // namespace atl::trace
