// The traces of --trace-steps: what a viewer is given.

#include <map>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct TraceSpan {
    std::string kind, name;
    double begin_us = 0, end_us = 0;
    int depth = 0;
};

class TraceProgramTest : public ProgramTest {
  protected:
    json trace_of(int rank) const {
        const auto text = read_file(path("out.trace/rank-" + std::to_string(rank) + ".json"));
        EXPECT_TRUE(text.ok());
        json all = json::parse(text.ok() ? *text : "{}", nullptr, false);
        EXPECT_TRUE(all.is_object());
        return all;
    }

    // In the order they began. A span that ends after the one it began in fails the test.
    static std::vector<TraceSpan> spans_of(const json& trace) {
        std::vector<TraceSpan> spans;
        std::vector<double> ends;  // of the spans around the last
        for (const json& event : trace["traceEvents"]) {
            if (event["ph"] != "X") continue;
            const double begin = event["ts"], end = begin + event["dur"].get<double>();
            while (!ends.empty() && ends.back() <= begin) ends.pop_back();
            EXPECT_TRUE(ends.empty() || end <= ends.back() + 1e-3) << event;
            spans.push_back({event["cat"], event["name"], begin, end, static_cast<int>(ends.size())});
            ends.push_back(end);
        }
        return spans;
    }
    static std::int64_t count(const std::vector<TraceSpan>& spans, const std::string& name) {
        return std::ranges::count(spans, name, &TraceSpan::name);
    }
};

TEST_F(TraceProgramTest, EachBlockIsThereOncePerPassAndTheSpansOfAStepFillIt) {
    make_wide_model("model");
    for (const int ranks : {1, 2}) {
        const auto result = train("out",
                                  {"--steps", "4", "--batch-size", "4", "--grad-accum", "2", "--sharding", "full_shard",
                                   "--activation-checkpointing", "full", "--trace-steps", "2", "--trace-from", "2"},
                                  ranks);
        ASSERT_EQ(result.exit_code, 0) << result.err;
        for (int rank = 0; rank < ranks; ++rank) {
            SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks);
            const json trace = trace_of(rank);
            EXPECT_EQ(trace["otherData"]["events_left_out"], 0);
            const std::vector<TraceSpan> spans = spans_of(trace);
            EXPECT_EQ(count(spans, "step 2") + count(spans, "step 3"), 2);
            EXPECT_EQ(std::ranges::count(spans, "step", &TraceSpan::kind), 2);
            for (const std::string block : {"embedding", "layers.0", "layers.1", "head"}) {
                EXPECT_EQ(count(spans, "forward " + block), block == "head" ? 0 : 4) << block;
                EXPECT_EQ(count(spans, "backward " + block), 4) << block << ", of two micro-steps of two steps";
                EXPECT_EQ(count(spans, "recompute " + block), block.starts_with("layers") ? 4 : 0) << block;
            }
            EXPECT_EQ(count(spans, "optimizer"), 2);
            double steps_us = 0, inside_us = 0;
            for (const TraceSpan& span : spans) {
                if (span.kind == "step") steps_us += span.end_us - span.begin_us;
                if (span.depth == 1) inside_us += span.end_us - span.begin_us;
            }
            EXPECT_GT(inside_us, 0.5 * steps_us);
            EXPECT_LE(inside_us, steps_us);
            std::map<std::string, int> transfers;
            for (const json& event : trace["traceEvents"]) {
                if (event["ph"] == "b") ++transfers[event["name"]];
                if (event["ph"] == "e") transfers[event["name"]] += 1000;
            }
            EXPECT_EQ(transfers.contains("gather layers.1"), ranks > 1);
            EXPECT_EQ(transfers["reduce layers.1"], ranks > 1 ? 4004 : 0);
            for (const auto& [name, seen] : transfers) EXPECT_EQ(seen / 1000, seen % 1000) << name;
        }
    }
    ASSERT_EQ(train("out", {"--steps", "1", "--trace-steps", "1"}).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("out.trace/rank-1.json"))) << "of the run before";
}

TEST_F(TraceProgramTest, ARunThatEndsBeforeTheLastTracedStepWritesWhatThereIs) {
    ASSERT_EQ(train("out", {"--steps", "9", "--trace-steps", "5", "--time-limit", kAtOnce}).exit_code, 0);
    const std::vector<TraceSpan> spans = spans_of(trace_of(0));
    EXPECT_EQ(std::ranges::count(spans, "step", &TraceSpan::kind), 1);
    EXPECT_EQ(count(spans, "save"), 1);
}

TEST_F(TraceProgramTest, WithoutTheFlagThereIsNone) {
    ASSERT_EQ(train("out", {"--steps", "2"}).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("out.trace")));
    const auto alone = train("out", {"--steps", "2", "--trace-from", "2"});
    EXPECT_EQ(alone.exit_code, 2);
    EXPECT_NE(alone.err.find("--trace-steps"), std::string::npos) << alone.err;
}

TEST_F(TraceProgramTest, ATraceThatCannotBeWrittenEndsNoRun) {
    ASSERT_TRUE(write_file_atomic(path("out.trace"), "a file").ok());
    const auto result = train("out", {"--steps", "2", "--trace-steps", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find("the trace is not written"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace atl::program
