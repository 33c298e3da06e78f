#include "services/cli/job_course.h"

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
    EXPECT_NE(picture.find("leonardo  running   7/20  5.25  4300"), std::string::npos) << picture;
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

TEST(JobCourseTest, PerplexitiesFormARowAModelAndAColumnASite) {
    JobCourse course = demo_course();
    const auto site = [](const char* facility, const char* dataset, double global, double own) {
        return json{{"facility", facility},
                    {"dataset", dataset},
                    {"evaluations",
                     {{{"which", "global"}, {"perplexity", global}}, {{"which", "leonardo"}, {"perplexity", own}}}}};
    };
    course.take(
        event("atoll.round.evaluated.v1",
              {{"round", 1}, {"sites", {site("leonardo", "it", 166, 125), site("karolina", "cs", 181, 2197)}}}));
    const std::string picture = course.picture();
    EXPECT_NE(picture.find("perplexity of     it at leonardo  cs at karolina"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1 global    166             181"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1 leonardo  125             2197"), std::string::npos) << picture;
}

TEST(JobCourseTest, ThePictureOfALongJobStaysSmall) {
    JobCourse course = demo_course();
    for (int round = 0; round <= 50; ++round)
        course.take(event("atoll.round.evaluated.v1",
                          {{"round", round},
                           {"sites",
                            {{{"facility", "leonardo"},
                              {"dataset", "it"},
                              {"evaluations",
                               {{{"which", round == 0 ? "base" : "global"}, {"perplexity", 100 + round}},
                                {{"which", "leonardo"}, {"perplexity", 200 + round}}}}}}}}));
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
