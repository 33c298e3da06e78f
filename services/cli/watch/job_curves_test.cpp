#include "services/cli/watch/job_curves.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::cli {
namespace {

using nlohmann::json;

json progress(int attempt, json more) {
    more.update({{"task", "t1"}, {"round", 2}, {"facility", "leonardo"}, {"kind", "train"}, {"attempt", attempt}});
    return {{"type", "atoll.task.progress.v1"}, {"time", "2026-03-01T12:00:00.5Z"}, {"data", more}};
}

JobCurves some_curves() {
    const json task = {{"id", "t1"}, {"kind", "train"}, {"dataset", "diaries"}};
    JobCurves curves(json::array({json{{"round", 2}, {"tasks", json::array({task})}}}));
    curves.apply(progress(1, {{"step", 3},
                              {"points",
                               {{"step", {1, 2, 3}},
                                {"time_unix_s", {1e9, 1e9, 1e9 + 0.25}},
                                {"loss", {5.5, 5.25, 5}},
                                {"val_loss", {nullptr, nullptr, 4.5}}}}}));
    curves.apply(progress(2, {{"step", 3}, {"time_unix_s", 1e9 + 9}, {"loss", 4.75}, {"mfu", 0.5}}));
    curves.apply(progress(1, {{"step", 4}, {"time_unix_s", 1e9 + 1}, {"loss", 9}}));
    curves.apply({{"type", "atoll.task.done.v1"},
                  {"time", "2026-03-01T12:00:00Z"},
                  {"data",
                   {{"kind", "evaluate"},
                    {"round", 2},
                    {"facility", "leonardo"},
                    {"dataset", "diaries"},
                    {"result", {{"evaluations", json::array({json{{"which", "global"}, {"perplexity", 13.5}}})}}}}}});
    return curves;
}

TEST(JobCurvesTest, ALineAStepOfTheAttemptThatCounts) {
    EXPECT_EQ(some_curves().csv(),
              "round,facility,dataset,step,time_unix_s,loss,val_loss,val_perplexity,lr,grad_norm,tokens_per_s,mfu\n"
              "2,leonardo,diaries,1,1000000000.000,5.5,,,,,,\n"
              "2,leonardo,diaries,2,1000000000.000,5.25,,,,,,\n"
              "2,leonardo,diaries,3,1000000009.000,4.75,,,,,,0.5\n");
}

TEST(JobCurvesTest, AValidationThatComesAfterItsStepIsOfThatStep) {
    JobCurves curves(json::array());
    curves.apply(progress(1, {{"step", 1}, {"time_unix_s", 1e9}, {"loss", 2}}));
    curves.apply(progress(1, {{"step", 1}, {"time_unix_s", 1e9 + 5}, {"val_loss", 1.5}, {"val_perplexity", 4.5}}));
    curves.apply(progress(1, {{"step", 2}, {"time_unix_s", 1e9 + 6}, {"loss", 1.75}}));
    EXPECT_EQ(curves.csv(),
              "round,facility,dataset,step,time_unix_s,loss,val_loss,val_perplexity,lr,grad_norm,tokens_per_s,mfu\n"
              "2,leonardo,,1,1000000000.000,2,1.5,4.5,,,,\n"
              "2,leonardo,,2,1000000006.000,1.75,,,,,,\n");
}

TEST(JobCurvesTest, AStepWithoutATimeHasThatOfItsEvent) {
    JobCurves curves(json::array());
    curves.apply(progress(1, {{"step", 1}, {"loss", 2}}));
    EXPECT_EQ(curves.json().at("trainings").at(0).at("time_unix_s"), json({1772366400.5}));
}

TEST(JobCurvesTest, EachSampleHasATimeOfItsOwn) {
    const std::string text = some_curves().openmetrics("my \"job\"");
    const std::string head =
        R"(atoll_training_loss{atoll_job="my \"job\"",facility="leonardo",dataset="diaries",round="2"})";
    EXPECT_NE(text.find("# TYPE atoll_training_loss gauge\n"), std::string::npos) << text;
    EXPECT_NE(text.find(head + " 5.5 1000000000.000\n" + head + " 5.25 1000000000.001\n"), std::string::npos) << text;
    EXPECT_NE(text.find("model=\"global\"} 13.5 1772366400.000\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("learning_rate"), std::string::npos) << "nothing says it";
    EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(JobCurvesTest, PrometheusTakesThemAll) {
    if (!run_command({"promtool", "--version"}).ok()) GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
    const TemporaryDirectory directory;
    const std::string file = directory.path() / "curves.txt", blocks = directory.path() / "blocks";
    std::ofstream(file) << some_curves().openmetrics("demo");
    const auto made = run_command({"promtool", "tsdb", "create-blocks-from", "openmetrics", file, blocks});
    ASSERT_TRUE(made.ok() && made->exit_code == 0) << (made.ok() ? made->out + made->err : made.error().message);
    std::filesystem::create_directory(std::filesystem::path(blocks) / "wal");  // as a Prometheus that reads them has
    const auto read = run_command({"promtool", "tsdb", "dump", blocks});
    ASSERT_TRUE(read.ok() && read->exit_code == 0) << read->err;
    std::size_t losses = 0;
    for (std::size_t at = read->out.find("\"atoll_training_loss\""); at != std::string::npos;
         at = read->out.find("\"atoll_training_loss\"", at + 1))
        ++losses;
    EXPECT_EQ(losses, 3U) << read->out;
    EXPECT_NE(read->out.find("13.5 1772366400000"), std::string::npos) << read->out;
}

}  // namespace
}  // namespace atl::cli
