#include "services/cli/watch/job_course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace atl::cli {
namespace {

using nlohmann::json;

JobCourse demo_course() {
    return JobCourse({{"name", "demo"}, {"spec", {{"rounds", 3}, {"training", {{"steps", 20}}}}}});
}

json event(const char* type, const json& data) {
    return {{"number", 1}, {"type", type}, {"data", data}};
}

json progress(int round, int step) {
    return event("atoll.task.progress.v1", {{"round", round},
                                            {"facility", "leonardo"},
                                            {"kind", "train"},
                                            {"attempt", 1},
                                            {"step", step},
                                            {"loss", 5.25},
                                            {"tokens_per_s", 4300.4}});
}

TEST(JobCourseTest, ThePictureShowsEachFacilitysNewestStep) {
    JobCourse course = demo_course();
    course.take(event("atoll.round.opened.v1", {{"round", 2}}));
    EXPECT_EQ(course.take(progress(2, 7)), "") << "a step is not worth a line";
    const std::string picture = course.picture();
    EXPECT_NE(picture.find("round 2 of 3"), std::string::npos) << picture;
    EXPECT_NE(picture.find("leonardo  running   1        7/20  5.25       4300\n"), std::string::npos) << picture;
}

json training(const char* what, int attempt, json more = json::object()) {
    more.update({{"round", 1}, {"facility", "leonardo"}, {"kind", "train"}, {"attempt", attempt}});
    return event(("atoll.task." + std::string(what) + ".v1").c_str(), more);
}

TEST(JobCourseTest, NumbersOfTheLastStepAndOfTheWholeTrainingStandApart) {
    JobCourse course = demo_course();
    course.take(event("atoll.round.opened.v1", {{"round", 1}}));
    course.take(training("progress", 1, {{"step", 19}, {"loss", 6}, {"tokens_per_s", 100}}));
    course.take(training("progress", 1, {{"step", 20}, {"loss", 5}, {"tokens_per_s", 300}}));
    const std::string line =
        course.take(training("done", 1, {{"result", {{"metrics", {{"loss", 5.5}, {"tokens_per_s", 150.2}}}}}}));
    EXPECT_EQ(line, "round 1  leonardo  train done, attempt 1  mean loss 5.5, mean 150.2 tokens/s");
    const std::string picture = course.picture();
    EXPECT_NE(picture.find("step   last loss  last tokens/s  mean loss  mean tokens/s\n"), std::string::npos)
        << picture;
    EXPECT_NE(picture.find("20/20  5          300            5.5        150.2\n"), std::string::npos)
        << "the end of a training changes no number's meaning\n"
        << picture;
}

const json kJobOfTwo = {
    {"name", "demo"},
    {"spec",
     {{"rounds", 1},
      {"participants", {{{"facility", "leonardo"}}, {{"facility", "karolina"}}}},
      {"evaluation",
       {{"at", {{{"facility", "leonardo"}, {"dataset", "it"}}, {{"facility", "karolina"}, {"dataset", "cs"}}}}}}}}};

json at_noon(json event) {
    event["time"] = "2026-03-01T12:00:00.250000Z";
    return event;
}

std::string picture_after_noon(const JobCourse& course, int seconds) {
    constexpr std::int64_t kNoon = 1772366400;
    return course.picture(std::chrono::system_clock::from_time_t(kNoon + seconds));
}

TEST(JobCourseTest, WhileARoundTrainsItsTimeAndWhoWaitsAreShown) {
    JobCourse course(kJobOfTwo);
    course.take(at_noon(event("atoll.round.opened.v1", {{"round", 1}})));
    const std::string picture = picture_after_noon(course, 75);
    EXPECT_NE(picture.find("round 1 of 1  training, 1 m 15 s\n"), std::string::npos) << picture;
    EXPECT_NE(picture.find("karolina  waiting\n"), std::string::npos) << picture;
}

TEST(JobCourseTest, WhileARoundIsAggregatedItsPartsAndTimeAreShown) {
    JobCourse course(kJobOfTwo);
    course.take(event("atoll.round.opened.v1", {{"round", 1}}));
    EXPECT_FALSE(course.aggregates());
    course.take(at_noon(event("atoll.round.closed.v1", {{"round", 1}, {"updates", {1, 2}}})));
    EXPECT_TRUE(course.aggregates());
    EXPECT_NE(picture_after_noon(course, 4).find("aggregating 2 of 2 updates, 4.0 s\n"), std::string::npos)
        << picture_after_noon(course, 4);
    course.take_aggregation({{"state", "averaging"}, {"parts", {{"total", 5}, {"done", 3}}}});
    EXPECT_NE(picture_after_noon(course, 9).find("aggregating 2 of 2 updates, 9.0 s, 3 of 5 parts averaged\n"),
              std::string::npos)
        << picture_after_noon(course, 9);
    course.take(event("atoll.round.aggregated.v1", {{"round", 1}}));
    EXPECT_FALSE(course.aggregates());
    EXPECT_EQ(course.picture().find("parts"), std::string::npos) << course.picture();
}

json evaluation(const char* what, const char* facility, const char* dataset, const json& more = json::object()) {
    json data = {{"round", 1}, {"facility", facility}, {"dataset", dataset}, {"kind", "evaluate"}, {"attempt", 1}};
    data.update(more);
    return event(("atoll.task." + std::string(what) + ".v1").c_str(), data);
}

TEST(JobCourseTest, WhileARoundIsEvaluatedItsSitesAndModelsAreShown) {
    JobCourse course(kJobOfTwo);
    EXPECT_EQ(course.take(event("atoll.round.aggregated.v1", {{"round", 1}})),
              "round 1: aggregated, to be evaluated at 2 sites");
    course.take(evaluation("running", "karolina", "cs"));
    EXPECT_EQ(course.take(evaluation("evaluating", "karolina", "cs",
                                     {{"models", 3}, {"models_done", 1}, {"model", "leonardo"}})),
              "");
    std::string picture = course.picture();
    EXPECT_NE(picture.find("evaluating round 1: 0 of 2 sites done\n"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1     cs at karolina  running  1/3     leonardo\n"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1     it at leonardo  waiting\n"), std::string::npos) << picture;
    course.take(evaluation("done", "karolina", "cs"));
    picture = course.picture();
    EXPECT_NE(picture.find("evaluating round 1: 1 of 2 sites done\n"), std::string::npos) << picture;
    EXPECT_EQ(picture.find("karolina  running"), std::string::npos) << picture;
    course.take(event("atoll.round.evaluated.v1", {{"round", 1}}));
    EXPECT_EQ(course.picture().find("sites done"), std::string::npos) << course.picture();
}

TEST(JobCourseTest, AttemptsAreNumberedAndEachBeginsAnew) {
    JobCourse course = demo_course();
    course.take(event("atoll.round.opened.v1", {{"round", 1}}));
    EXPECT_EQ(course.take(training("running", 1)), "round 1  leonardo  train running, attempt 1");
    course.take(training("progress", 1, {{"step", 7}, {"loss", 6}, {"tokens_per_s", 100}}));
    EXPECT_EQ(course.take(training("retrying", 1, {{"error", "exit code 1: no space"}})),
              "round 1  leonardo  train failed at attempt 1, trying again: exit code 1: no space");
    course.take(training("running", 2));
    EXPECT_NE(course.picture().find("leonardo  running   2\n"), std::string::npos) << course.picture();
}

TEST(JobCourseTest, AFailureIsToldOnce) {
    JobCourse course = demo_course();
    const std::string why = "leonardo: train of round 1 failed at attempt 3: exit code 2: --lr is wrong";
    EXPECT_EQ(course.take(training("failed", 3, {{"error", why}})), why);
    EXPECT_EQ(course.take(event("atoll.job.failed.v1", {{"error", why}})), "job demo failed");
    EXPECT_TRUE(course.has_told_error());
    EXPECT_EQ(course.error(), why);
    JobCourse other = demo_course();
    other.take(training("failed", 3, {{"error", why}}));
    EXPECT_EQ(other.take(event("atoll.job.failed.v1", {{"error", "aggregation failed"}})),
              "job demo failed: aggregation failed")
        << "another reason is told";
}

TEST(JobCourseTest, APauseIsShownAndItsEnd) {
    JobCourse course = demo_course();
    EXPECT_EQ(course.take_state("running"), "");
    EXPECT_NE(course.take_state("paused").find("job demo paused"), std::string::npos);
    EXPECT_EQ(course.take_state("paused"), "") << "no news";
    EXPECT_NE(course.picture().find("  paused\n"), std::string::npos) << course.picture();
    EXPECT_EQ(course.take_state("running"), "job demo goes on");
    EXPECT_EQ(course.picture().find("paused"), std::string::npos);
}

TEST(JobCourseTest, ARoundIsAggregatedOfTheUpdatesThatCameIn) {
    const json site = {{"facility", "leonardo"}};
    JobCourse course({{"name", "demo"}, {"spec", {{"rounds", 3}, {"participants", {site, site, site}}}}});
    EXPECT_EQ(course.take(event("atoll.round.closed.v1", {{"round", 1}, {"updates", {site, site}}})),
              "round 1: 2 of 3 updates, aggregating");
}

TEST(JobCourseTest, ANewRoundForgetsTheTasksOfTheOneBefore) {
    JobCourse course = demo_course();
    course.take(event("atoll.round.opened.v1", {{"round", 1}}));
    course.take(progress(1, 20));
    course.take(event("atoll.round.opened.v1", {{"round", 2}}));
    EXPECT_EQ(course.picture().find("leonardo"), std::string::npos) << course.picture();
    course.take(progress(1, 20));
    EXPECT_EQ(course.picture().find("leonardo"), std::string::npos) << "an event of an old round came again";
}

json results(int round, const char* facility, const char* dataset, const json& perplexities) {
    json evaluations = json::array();
    for (const auto& [which, perplexity] : perplexities.items())
        evaluations.push_back({{"which", which}, {"perplexity", perplexity}});
    return evaluation("done", facility, dataset,
                      {{"round", round}, {"result", {{"dataset", dataset}, {"evaluations", evaluations}}}});
}

TEST(JobCourseTest, PerplexitiesFormARowAModelAndAColumnASite) {
    JobCourse course = demo_course();
    course.take(results(1, "leonardo", "it", {{"global", 166}, {"leonardo", 125}}));
    course.take(results(1, "karolina", "cs", {{"global", 181}, {"leonardo", 2197}}));
    EXPECT_EQ(course.picture().find("perplexity"), std::string::npos) << "another site may still evaluate";
    EXPECT_EQ(course.take(event("atoll.round.evaluated.v1", {{"round", 1}})),
              "round 1  perplexity  cs at karolina: global 181 leonardo 2197  it at leonardo: global 166 leonardo 125");
    const std::string picture = course.picture();
    EXPECT_NE(picture.find("perplexity of     cs at karolina  it at leonardo"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1 global    181             166"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1 leonardo  2197            125"), std::string::npos) << picture;
}

TEST(JobCourseTest, ThePictureOfALongJobStaysSmall) {
    JobCourse course = demo_course();
    for (int round = 0; round <= 50; ++round) {
        const char* model = round == 0 ? "base" : "global";
        course.take(results(round, "leonardo", "it", {{model, 100 + round}, {"leonardo", 200 + round}}));
        course.take(event("atoll.round.evaluated.v1", {{"round", round}}));
    }
    const std::string picture = course.picture();
    EXPECT_LE(std::count(picture.begin(), picture.end(), '\n'), 20) << picture;
    for (const char* shown : {"base model", "round 43 global", "round 50 global", "round 50 leonardo"})
        EXPECT_NE(picture.find(shown), std::string::npos) << shown << " is missing in\n" << picture;
    EXPECT_EQ(picture.find("round 49 leonardo"), std::string::npos) << picture;
}

TEST(JobCourseTest, AFailedJobEndsWithItsReason) {
    JobCourse course = demo_course();
    EXPECT_FALSE(course.ended());
    const std::string line = course.take(event("atoll.job.failed.v1", {{"error", "round 2: no update from karolina"}}));
    EXPECT_NE(line.find("no update from karolina"), std::string::npos) << line;
    EXPECT_TRUE(course.ended());
    EXPECT_EQ(course.final_state(), "failed");
}

TEST(JobCourseTest, EventsOfAnUnknownKindOrWithoutDataAreIgnored) {
    JobCourse course = demo_course();
    EXPECT_EQ(course.take(event("atoll.weather.v1", json::object())), "");
    EXPECT_EQ(course.take(json::object()), "");
    EXPECT_FALSE(course.ended());
}

}  // namespace
}  // namespace atl::cli
