// Traces of a device's streams, on the far device and on the GPU's backend; ranks as in engine_test.cpp.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "trainer/kernels/testing/backends.h"
#include "trainer/parallel/testing/tiny_run.h"
#include "trainer/trace/trace.h"

namespace atl::parallel {
namespace {

using nlohmann::json;

struct StreamSpan {
    std::string name;
    double begin_us = 0, end_us = 0;
};
using Rows = std::map<std::string, std::vector<StreamSpan>>;

// The spans of each row in the order of their beginning. What a viewer could not show fails the test.
Rows rows_of(const json& trace) {
    std::map<int, std::string> names;
    Rows rows;
    for (const json& event : trace["traceEvents"]) {
        EXPECT_EQ(event["pid"], world->rank());
        EXPECT_TRUE(event["name"].is_string() && event["tid"].is_number_integer()) << event;
        if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
        if (event["ph"] == "M") continue;
        EXPECT_TRUE(names.contains(event["tid"]) && event["ts"].is_number()) << event;
        if (event["ph"] != "X") continue;
        const double begin = event["ts"], duration = event["dur"];
        EXPECT_GE(duration, 0) << event;
        rows[names[event["tid"]]].push_back({event["name"], begin, begin + duration});
    }
    for (auto& [row, spans] : rows) std::ranges::stable_sort(spans, {}, &StreamSpan::begin_us);
    return rows;
}

class DeviceTraceTest : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == kernels::kGpu && kernels::open_tested_gpu(1) == nullptr) GTEST_SKIP() << "no GPU here";
    }

    Variant variant() const {
        Variant variant{Sharding::kFullShard, ActivationCheckpointing::kFull};
        variant.offload_params = Offload::kCpu;  // gathered on one rank, too
        variant.open_device = [] { return kernels::make_tested_backend(GetParam(), 1); };
        return variant;
    }
    // Two steps after one that is not traced, each begun before the one before it is read.
    static json trace_steps(parallel::Run& run) {
        run.begin_step(1);
        trace::start(run.device());
        for (int step = 2; step <= 3; ++step) {
            run.begin_step(step);
            run.read_loss();
            trace::take_times();
        }
        json trace = json::parse(trace::finish(world->rank(), world->size()));
        run.read_loss();
        return trace;
    }
};

TEST_P(DeviceTraceTest, StreamsHaveRowsWhoseSpansDoNotOverlap) {
    parallel::Run run(*world, variant());
    Rows rows = rows_of(trace_steps(run));
    for (const char* name : {"device: computes", "device: copies in", "device: copies out"}) {
        const std::vector<StreamSpan>& spans = rows[name];
        EXPECT_GT(spans.size(), 1U) << name;
        for (std::size_t i = 1; i < spans.size(); ++i)
            EXPECT_GE(spans[i].begin_us + 1e-3, spans[i - 1].end_us) << name << ": " << spans[i].name;
    }
    const auto count = [&](const std::string& name) {
        return std::ranges::count(rows["device: computes"], name, &StreamSpan::name);
    };
    for (const std::string block : {"embedding", "layers.0", "layers.1", "layers.2", "head"}) {
        EXPECT_EQ(count("forward " + block), block == "head" ? 0 : 2) << block;
        EXPECT_EQ(count("recompute " + block), block.starts_with("layers") ? 2 : 0) << block;
        EXPECT_EQ(count("backward " + block), 2) << block;
    }
    EXPECT_EQ(count("optimizer"), 2) << "all ranges of a step at once";
    EXPECT_EQ(count("norm"), 2);
}

TEST_P(DeviceTraceTest, ABlockRunsAfterItsWeightsCame) {
    parallel::Run run(*world, variant());
    Rows rows = rows_of(trace_steps(run));
    const std::vector<StreamSpan>& copies = rows["device: copies in"];
    std::map<std::string, double> came_us;  // of the last gather's wait
    int forwards = 0;
    for (const StreamSpan& span : rows["device: computes"]) {
        if (span.name.starts_with("wait for gather ")) came_us[span.name.substr(16)] = span.end_us;
        if (!span.name.starts_with("forward ")) continue;
        ++forwards;
        const std::string block = span.name.substr(8);
        ASSERT_TRUE(came_us.contains(block)) << span.name;
        EXPECT_LE(came_us[block], span.begin_us + 1e-3);
        came_us.erase(block);  // the weights change after each step
        const auto done =
            std::ranges::count_if(copies, [&](const StreamSpan& copy) { return copy.end_us <= span.begin_us + 1e-3; });
        EXPECT_GE(done, forwards) << span.name << " needs a copy of its own";
    }
    EXPECT_EQ(forwards, 8);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTraceTest, ::testing::Values(kernels::kFar, kernels::kGpu),
                         [](const auto& instance) { return instance.param; });

TEST(FarDeviceTest, ATraceMakesTheHostOfAStepWaitNoOftener) {
    const auto self = comm::make_self();
    Variant variant;
    variant.far = 1;
    parallel::Run run(*self, variant);
    run.begin_step(1);
    trace::start(run.device());
    const int before = run.far_device().host_waits();
    for (int step = 2; step <= 8; ++step) {
        run.begin_step(step);
        run.read_loss();
        trace::take_times();
    }
    const int waits = run.far_device().host_waits() - before;
    trace::finish(0, 1);
    EXPECT_EQ(waits, 6) << "for steps 2 to 7: the beginning of the trace waited for step 1";
}

}  // namespace
}  // namespace atl::parallel
