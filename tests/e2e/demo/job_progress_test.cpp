#include "tests/e2e/demo/job_progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace atl::demo {
namespace {

using json::Json;

Json step_event(int step, double loss) {
    return {{"type", "atoll.task.progress.v1"},
            {"data", {{"round", 1}, {"facility", "leonardo"}, {"step", step}, {"loss", loss}}}};
}

Json results() {
    const Json evaluations = Json::array({{{"which", "global"}, {"model", "d1"}, {"perplexity", 12.0}},
                                          {{"which", "leonardo"}, {"model", "d2"}, {"perplexity", 10.0}}});
    return {
        {"type", "atoll.task.done.v1"},
        {"data", {{"kind", "evaluate"}, {"round", 1}, {"dataset", "a"}, {"result", {{"evaluations", evaluations}}}}}};
}

TEST(JobProgressTest, TheMeanLossIsThatOfTheLastAttempt) {
    JobProgress progress(std::map<std::string, std::string>{{"a", "it"}});
    for (const Json& event :
         {step_event(1, 9.0), step_event(2, 8.0), step_event(1, 6.0), step_event(2, 4.0), step_event(2, 4.0)})
        progress.take(event);
    EXPECT_DOUBLE_EQ(progress.rounds().at(1).training.at("leonardo").mean_loss(), 5.0);
}

TEST(JobProgressTest, ARoundThatIsAggregatedIsALine) {
    JobProgress progress({});
    EXPECT_EQ(progress.take({{"type", "atoll.round.closed.v1"}, {"data", {{"round", 2}, {"updates", {1, 2}}}}}),
              "round  2  aggregating 2 updates");
}

TEST(JobProgressTest, PerplexitiesGoToTheLanguageOfTheirData) {
    JobProgress progress(std::map<std::string, std::string>{{"a", "cs"}});
    EXPECT_EQ(progress.take(results()), "");
    EXPECT_EQ(progress.take({{"type", "atoll.round.evaluated.v1"}, {"data", {{"round", 1}}}}),
              "round  1  perplexity (it, cs):  global nan, 12.0  leonardo nan, 10.0");
    EXPECT_EQ(progress.rounds().at(1).model, "d1");
    EXPECT_EQ(progress.rounds().at(1).perplexity.at("leonardo").cs, 10.0);
    EXPECT_TRUE(std::isnan(progress.rounds().at(1).perplexity.at("leonardo").it));
}

}  // namespace
}  // namespace atl::demo
