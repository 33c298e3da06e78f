#include "services/cli/watch/job_progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/cli/watch/evaluation_progress.h"

namespace atl::cli {
namespace {

using nlohmann::json;

JobProgress demo_progress() {
    return JobProgress({{"name", "demo"}, {"spec", {{"rounds", 3}, {"training", {{"steps", 20}}}}}});
}

json event(const char* type, const json& data) {
    return {{"number", 1}, {"type", type}, {"data", data}};
}

json step_event(int round, int step) {
    return event("atoll.task.progress.v1", {{"round", round},
                                            {"facility", "leonardo"},
                                            {"kind", "train"},
                                            {"attempt", 1},
                                            {"step", step},
                                            {"loss", 5.25},
                                            {"tokens_per_s", 4300.4}});
}

TEST(JobProgressTest, ThePictureShowsEachFacilitysNewestStep) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 2}}));
    EXPECT_EQ(progress.apply(step_event(2, 7)), "") << "a step is not worth a line";
    const std::string picture = progress.picture();
    EXPECT_NE(picture.find("round 2 of 3"), std::string::npos) << picture;
    EXPECT_NE(picture.find("leonardo  running   1        7/20  5.25       4300\n"), std::string::npos) << picture;
}

TEST(JobProgressTest, AValidationWhileARoundTrainsIsALineAndStaysInThePicture) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 2}}));
    const auto apply = [&](const json& more) {
        json told = step_event(2, more.at("step"));
        for (const char* key : {"loss", "tokens_per_s"}) told["data"].erase(key);
        told["data"].update(more);
        return progress.apply(told);
    };
    progress.apply(step_event(2, 7));
    EXPECT_EQ(progress.picture().find("validation"), std::string::npos) << "other jobs have no such column";
    EXPECT_EQ(apply({{"step", 7}, {"val_loss", 4.5}, {"val_perplexity", 90.0171}}),
              "round 2  leonardo  validated after step 7: loss 4.5, perplexity 90.02");
    for (const int step : {7, 8}) {
        if (step == 8) progress.apply(step_event(2, step));
        const std::string picture = progress.picture();
        EXPECT_NE(picture.find("last loss  validation loss  last tokens/s"), std::string::npos) << picture;
        EXPECT_NE(picture.find(std::to_string(step) + "/20  5.25       4.5              4300\n"), std::string::npos)
            << picture;
    }
    EXPECT_EQ(apply({{"step", 12},
                     {"loss", 5},
                     {"points",
                      {{"step", {9, 10, 11, 12}},
                       {"loss", {5.5, 5.25, 5.125, 5}},
                       {"val_loss", {4.25, nullptr, 4.125, nullptr}}}}}),
              "round 2  leonardo  validated after step 11: loss 4.125")
        << "the newest";
    EXPECT_NE(progress.picture().find("12/20  5          4.125"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, ARoundThatStandsForAnEarlierOneSaysWhichOfHowMany) {
    JobProgress progress = demo_progress();
    EXPECT_EQ(progress.apply(event("atoll.round.opened.v1", {{"round", 2}, {"index", 2}, {"rounds", 3}})),
              "round 2 of 3 opened");
    EXPECT_EQ(progress.apply(event("atoll.round.opened.v1", {{"round", 5}, {"index", 2}, {"rounds", 3}})),
              "round 5 (as 2 of 3) opened");
    EXPECT_NE(progress.picture().find("round 5 (as 2 of 3)"), std::string::npos) << progress.picture();
}

json training(const char* what, int attempt, json more = json::object()) {
    more.update({{"round", 1}, {"facility", "leonardo"}, {"kind", "train"}, {"attempt", attempt}});
    return event(("atoll.task." + std::string(what) + ".v1").c_str(), more);
}

TEST(JobProgressTest, WhatStandsInTheWayAtAFacilityIsToldWhenItIsNewsAndWhenItIsOver) {
    JobProgress progress = demo_progress();
    const json away = {
        {"facility", "leonardo"}, {"reason", "Permission denied"}, {"since", "noon"}, {"next_try", "five past"}};
    const std::string told = "leonardo  waits since noon: Permission denied; next try at five past";
    EXPECT_EQ(progress.apply_waiting(json::array()), "");
    EXPECT_EQ(progress.apply_waiting(json::array({away})), told);
    json later = away;
    later["next_try"] = "ten past";
    EXPECT_EQ(progress.apply_waiting(json::array({later})), "") << "it goes on as it was";
    EXPECT_NE(progress.picture().find("Permission denied; next try at ten past\n"), std::string::npos);
    EXPECT_EQ(progress.apply_waiting(json::array()), "leonardo  goes on");
    EXPECT_EQ(progress.picture().find("Permission denied"), std::string::npos);
}

TEST(JobProgressTest, WhatWasUnderWayWhenTheJobEndedIsNotShownAsRunning) {
    for (const char* end : {"failed", "cancelled", "paused"}) {
        JobProgress progress = demo_progress();
        progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
        progress.apply(step_event(1, 7));
        progress.apply(event(("atoll.job." + std::string(end) + ".v1").c_str(), {{"error", "why"}}));
        EXPECT_EQ(progress.picture().find("running"), std::string::npos) << progress.picture();
        EXPECT_NE(progress.picture().find("leonardo  cancelled"), std::string::npos) << progress.picture();
    }
}

TEST(JobProgressTest, ABatchJobThatIsStillBeingCancelledIsNotShownAsCancelled) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    progress.apply(step_event(1, 7));
    progress.apply(event("atoll.job.cancelled.v1", json::object()));
    const json wait = {
        {"facility", "leonardo"}, {"reason", "scancel gave no answer"}, {"cancelling", true}, {"since", "noon"}};
    const std::string line = "leonardo  scancel gave no answer since noon";
    EXPECT_EQ(progress.apply_left(json::array({wait})), line);
    EXPECT_NE(progress.picture().find("leonardo  cancelling  "), std::string::npos) << progress.picture();
    EXPECT_NE(progress.picture().find(line), std::string::npos) << progress.picture();
    EXPECT_EQ(progress.apply_left(json::array()), "");
}

TEST(JobProgressTest, NumbersOfTheLastStepAndOfTheWholeTrainingStandApart) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    progress.apply(training("progress", 1, {{"step", 19}, {"loss", 6}, {"tokens_per_s", 100}}));
    progress.apply(training("progress", 1, {{"step", 20}, {"loss", 5}, {"tokens_per_s", 300}}));
    const std::string line =
        progress.apply(training("done", 1, {{"result", {{"metrics", {{"loss", 5.5}, {"tokens_per_s", 150.2}}}}}}));
    EXPECT_EQ(line, "round 1  leonardo  train done, attempt 1  mean loss 5.5, mean 150.2 tokens/s");
    const std::string anew =
        progress.apply(training("done", 1, {{"result", {{"metrics", {{"loss", 5.5}, {"optimizer_anew", true}}}}}}));
    EXPECT_NE(anew.find("its optimizer began anew"), std::string::npos) << anew;
    const std::string lost = progress.apply(
        training("done", 1, {{"result", {{"metrics", {{"loss", 5.5}, {"rounding_error_anew", true}}}}}}));
    EXPECT_NE(lost.find("what rounding its last update lost"), std::string::npos) << lost;
    const std::string alone = progress.apply(
        training("done", 1, {{"result", {{"metrics", {{"loss", 5.5}, {"control_variate_anew", true}}}}}}));
    EXPECT_NE(alone.find("nothing was added to its gradients"), std::string::npos) << alone;
    progress.apply(training("done", 1, {{"result", {{"metrics", {{"loss", 5.5}, {"tokens_per_s", 150.2}}}}}}));
    const std::string picture = progress.picture();
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

std::string picture_after_noon(const JobProgress& progress, int seconds) {
    constexpr std::int64_t kNoon = 1772366400;
    return progress.picture(0, std::chrono::system_clock::from_time_t(kNoon + seconds));
}

TEST(JobProgressTest, WhileARoundTrainsItsTimeAndWhoWaitsAreShown) {
    JobProgress progress(kJobOfTwo);
    progress.apply(at_noon(event("atoll.round.opened.v1", {{"round", 1}})));
    const std::string picture = picture_after_noon(progress, 75);
    EXPECT_NE(picture.find("round 1 of 1  training, 1 m 15 s\n"), std::string::npos) << picture;
    EXPECT_NE(picture.find("karolina  waiting\n"), std::string::npos) << picture;
}

TEST(JobProgressTest, WhileARoundIsAggregatedItsPartsAndTimeAreShown) {
    JobProgress progress(kJobOfTwo);
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    EXPECT_FALSE(progress.aggregates());
    progress.apply(at_noon(event("atoll.round.closed.v1", {{"round", 1}, {"updates", {1, 2}}})));
    EXPECT_TRUE(progress.aggregates());
    EXPECT_NE(picture_after_noon(progress, 4).find("aggregating 2 of 2 updates, 4.0 s\n"), std::string::npos)
        << picture_after_noon(progress, 4);
    progress.apply_aggregation({{"state", "averaging"}, {"parts", {{"total", 5}, {"done", 3}}}});
    EXPECT_NE(picture_after_noon(progress, 9).find("aggregating 2 of 2 updates, 9.0 s, 3 of 5 parts averaged\n"),
              std::string::npos)
        << picture_after_noon(progress, 9);
    progress.apply(event("atoll.round.aggregated.v1", {{"round", 1}}));
    EXPECT_FALSE(progress.aggregates());
    EXPECT_EQ(progress.picture().find("parts"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, ASpoiledModelAndWhoDoesNotCountWholeAreTold) {
    JobProgress progress(kJobOfTwo);
    const std::string aggregated = progress.apply(
        event("atoll.round.aggregated.v1", {{"round", 1},
                                            {"updates",
                                             {{{"facility", "leonardo"}, {"norm", 21.5}, {"counted", 1}},
                                              {{"facility", "karolina"}, {"norm", 194}, {"counted", 0.25}}}}}));
    EXPECT_NE(aggregated.find("karolina's change has the norm 194, far from the others': 25 % of it counts"),
              std::string::npos)
        << aggregated;
    EXPECT_EQ(aggregated.find("leonardo"), std::string::npos) << aggregated;
    const std::string of_variate =
        progress.apply(event("atoll.round.aggregated.v1", {{"round", 1},
                                                           {"updates",
                                                            {{{"facility", "leonardo"},
                                                              {"counted", 1},
                                                              {"control_variate_norm", 1e38},
                                                              {"control_variate_counted", 0}}}}}));
    EXPECT_NE(of_variate.find("leonardo's control variate has the norm 1e+38: 0 % of it counts"), std::string::npos)
        << of_variate;
    EXPECT_EQ(aggregated.find("pointed away"), std::string::npos) << aggregated;
    const std::string opposed = progress.apply(
        event("atoll.round.aggregated.v1",
              {{"round", 4}, {"updates", {{{"facility", "karolina"}, {"cosine", -0.971}, {"opposed_rounds", 4}}}}}));
    EXPECT_NE(opposed.find("karolina's updates have opposed the other sites' for 4 rounds in a row (cosine -0.97)"),
              std::string::npos)
        << opposed;
    const std::string paused = progress.apply(event("atoll.job.paused.v1", {{"round", 1}, {"error", "it got worse"}}));
    for (const char* said : {"paused: it got worse", "--accept", "--without FACILITY", "--from-round N"})
        EXPECT_NE(paused.find(said), std::string::npos) << paused;
    EXPECT_EQ(progress.apply_state("paused"), "") << "told already, and with the right remedy";
    EXPECT_NE(progress.picture().find("it got worse\n`atoll job resume` goes on: --accept"), std::string::npos)
        << progress.picture();
    EXPECT_NE(progress.apply(event("atoll.participant.left_out.v1", {{"facility", "karolina"}}))
                  .find("karolina trains no more"),
              std::string::npos);
    EXPECT_NE(progress.apply(event("atoll.job.resumed.v1", {{"from_round", 0}})).find("from the model of round 0"),
              std::string::npos);
}

json evaluation(const char* what, const char* facility, const char* dataset, const json& more = json::object()) {
    json data = {{"round", 1}, {"facility", facility}, {"dataset", dataset}, {"kind", "evaluate"}, {"attempt", 1}};
    data.update(more);
    return event(("atoll.task." + std::string(what) + ".v1").c_str(), data);
}

TEST(JobProgressTest, WhileARoundIsEvaluatedItsDatasetsAndModelsAreShown) {
    JobProgress progress(kJobOfTwo);
    const std::string line = progress.apply(event("atoll.round.aggregated.v1", {{"round", 1}}));
    EXPECT_TRUE(line.starts_with("round 1: aggregated") && line.find("2 datasets") != std::string::npos) << line;
    progress.apply(evaluation("running", "karolina", "cs"));
    EXPECT_EQ(progress.apply(evaluation("evaluating", "karolina", "cs",
                                        {{"models", 3}, {"models_done", 1}, {"model", "leonardo"}})),
              "");
    std::string picture = progress.picture();
    EXPECT_NE(picture.find("evaluating round 1: 0 of 2 "), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1     cs at karolina  running  1/3     leonardo\n"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1     it at leonardo  waiting\n"), std::string::npos) << picture;
    progress.apply(evaluation("done", "karolina", "cs"));
    picture = progress.picture();
    EXPECT_NE(picture.find("evaluating round 1: 1 of 2 "), std::string::npos) << picture;
    EXPECT_EQ(picture.find("karolina  running"), std::string::npos) << picture;
    progress.apply(event("atoll.round.evaluated.v1", {{"round", 1}}));
    EXPECT_EQ(progress.picture().find("evaluating round"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, AttemptsAreNumberedAndEachBeginsAnew) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    EXPECT_TRUE(progress.apply(training("running", 1)).ends_with("attempt 1"));
    progress.apply(training("progress", 1, {{"step", 7}, {"loss", 6}, {"tokens_per_s", 100}}));
    const std::string line = progress.apply(training("retrying", 1, {{"error", "exit code 1: no space"}}));
    EXPECT_TRUE(line.starts_with("round 1  leonardo  train ") && line.ends_with(": exit code 1: no space")) << line;
    EXPECT_NE(line.find("failed at attempt 1"), std::string::npos) << line;
    const std::string why = "its batch job was cancelled by root (CANCELLED by root)";
    const std::string cut = progress.apply(training("retrying", 1, {{"error", why}, {"interrupted", true}}));
    EXPECT_TRUE(cut.ends_with(
        "train ended at attempt 1; the next one goes on from the last saved state, if there is one: " + why))
        << cut;
    progress.apply(training("running", 2));
    EXPECT_NE(progress.picture().find("leonardo  running   2\n"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, OfWhatMadeNoStepNoSavedStateIsSpokenOf) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    const json cut = {{"error", "its batch job was cancelled before it began"}, {"interrupted", true}};
    for (const std::int64_t attempt : {1, 2}) {
        const std::string never_began = progress.apply(training("retrying", attempt, cut));
        EXPECT_NE(never_began.find("the next one begins at the start: its batch job"), std::string::npos)
            << never_began;
    }
    progress.apply(training("progress", 3, {{"step", 1}, {"loss", 6}}));
    for (const std::int64_t attempt : {3, 4}) {
        const std::string began = progress.apply(training("retrying", attempt, cut));
        EXPECT_NE(began.find("goes on from the last saved state"), std::string::npos) << began;
    }
    json evaluation = training("retrying", 1, cut);
    evaluation["data"]["kind"] = "evaluate";
    EXPECT_NE(progress.apply(evaluation).find("the next one does it again: "), std::string::npos);
}

TEST(JobProgressTest, TheNewestLossStaysWhereAStepTellsNone) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    progress.apply(training("progress", 1, {{"step", 7}, {"loss", 6.25}}));
    progress.apply(training("progress", 1, {{"step", 8}, {"tokens_per_s", 100}}));
    EXPECT_NE(progress.picture().find("6.25"), std::string::npos) << progress.picture();
    progress.apply(
        training("progress", 1, {{"step", 12}, {"points", {{"step", {10, 11, 12}}, {"loss", {6.5, 6.125, nullptr}}}}}));
    EXPECT_NE(progress.picture().find("6.125"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, WhereALaterAttemptBeginsIsTold) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    progress.apply(training("progress", 1, {{"step", 7}}));
    progress.apply(training("running", 2));
    const std::string again = progress.apply(training("progress", 2, {{"step", 3}, {"first_step", 1}}));
    EXPECT_NE(again.find("begins again at step 1: no state was saved up to step 7"), std::string::npos) << again;
    EXPECT_NE(again.find("save_every"), std::string::npos) << again;
    progress.apply(training("running", 3));
    const std::string on = progress.apply(training("progress", 3, {{"step", 9}, {"first_step", 5}}));
    EXPECT_TRUE(on.ends_with("train, attempt 3, goes on at step 5")) << on;
}

TEST(JobProgressTest, AFailureIsToldOnce) {
    JobProgress progress = demo_progress();
    const std::string why = "leonardo: train of round 1 failed at attempt 3: exit code 2: --lr is wrong";
    EXPECT_EQ(progress.apply(training("failed", 3, {{"error", why}})), why);
    EXPECT_EQ(progress.apply(event("atoll.job.failed.v1", {{"error", why}})).find(why), std::string::npos);
    EXPECT_TRUE(progress.has_told_error());
    EXPECT_EQ(progress.error(), why);
    JobProgress other = demo_progress();
    other.apply(training("failed", 3, {{"error", why}}));
    const std::string line = other.apply(event("atoll.job.failed.v1", {{"error", "aggregation failed"}}));
    EXPECT_TRUE(line.ends_with(": aggregation failed")) << "another reason is told: " << line;
}

TEST(JobProgressTest, AJobThatCompletesAfterASiteFailedHasNoReason) {
    JobProgress progress = demo_progress();
    progress.apply(training("failed", 3, {{"error", "leonardo: exit code 2"}}));
    const std::string line = progress.apply(event("atoll.job.completed.v1", {{"round", 1}}));
    EXPECT_TRUE(line.ends_with(" completed")) << line;
}

TEST(JobProgressTest, WhyARoundWentOnWithoutASiteIsTold) {
    JobProgress progress = demo_progress();
    progress.apply(step_event(1, 3));
    const std::string why = "the round went on without it: the site has not answered for 31 m 00 s";
    const std::string line = progress.apply(training("cancelled", 1, {{"error", why}}));
    for (const std::string& said : {std::string("round 1"), std::string("leonardo"), why})
        EXPECT_NE(line.find(said), std::string::npos) << line;
    EXPECT_NE(progress.picture().find("cancelled"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, APauseIsShownAndItsEnd) {
    JobProgress progress = demo_progress();
    EXPECT_EQ(progress.apply_state("running"), "");
    EXPECT_NE(progress.apply_state("paused").find("atoll job resume"), std::string::npos);
    EXPECT_EQ(progress.apply_state("paused"), "") << "no news";
    EXPECT_NE(progress.picture().find("  paused\n"), std::string::npos) << progress.picture();
    EXPECT_NE(progress.apply_state("running"), "");
    EXPECT_EQ(progress.picture().find("paused"), std::string::npos);
}

TEST(JobProgressTest, ARoundIsAggregatedOfTheUpdatesThatCameIn) {
    const json facility = {{"facility", "leonardo"}};
    JobProgress progress(
        {{"name", "demo"}, {"spec", {{"rounds", 3}, {"participants", {facility, facility, facility}}}}});
    const std::string line =
        progress.apply(event("atoll.round.closed.v1", {{"round", 1}, {"updates", {facility, facility}}}));
    EXPECT_NE(line.find("2 of 3"), std::string::npos) << line;
}

TEST(JobProgressTest, ANewRoundForgetsTheTasksOfTheOneBefore) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 1}}));
    progress.apply(step_event(1, 20));
    progress.apply(event("atoll.round.opened.v1", {{"round", 2}}));
    EXPECT_EQ(progress.picture().find("leonardo"), std::string::npos) << progress.picture();
    progress.apply(step_event(1, 20));
    EXPECT_EQ(progress.picture().find("leonardo"), std::string::npos) << "an event of an old round came again";
}

json results(int round, const char* facility, const char* dataset, const json& perplexities) {
    json evaluations = json::array();
    for (const auto& [which, perplexity] : perplexities.items())
        evaluations.push_back({{"which", which}, {"perplexity", perplexity}});
    return evaluation("done", facility, dataset,
                      {{"round", round}, {"result", {{"dataset", dataset}, {"evaluations", evaluations}}}});
}

TEST(JobProgressTest, PerplexitiesFormARowAModelAndAColumnADataset) {
    JobProgress progress = demo_progress();
    progress.apply(results(1, "leonardo", "it", {{"global", 166}, {"leonardo", 125}}));
    progress.apply(results(1, "karolina", "cs", {{"global", 181}, {"leonardo", 2197}}));
    EXPECT_EQ(progress.picture().find("perplexity"), std::string::npos) << "another facility may still evaluate";
    EXPECT_EQ(progress.apply(event("atoll.round.evaluated.v1", {{"round", 1}})),
              "round 1  perplexity  cs at karolina: global 181 leonardo 2197  it at leonardo: global 166 leonardo 125");
    const std::string picture = progress.picture();
    EXPECT_NE(picture.find("perplexity of     cs at karolina  it at leonardo"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1 global    181             166"), std::string::npos) << picture;
    EXPECT_NE(picture.find("round 1 leonardo  2197            125"), std::string::npos) << picture;
}

TEST(JobProgressTest, ARoundWhoseEvaluationsFailedSaysSoAndWhy) {
    JobProgress progress = demo_progress();
    const auto evaluated = [&](int round, int failed) {
        return progress.apply(event(
            "atoll.round.evaluated.v1",
            {{"round", round}, {"failed_evaluations", {{"count", failed}, {"of", 2}, {"reason", "exit code 1"}}}}));
    };
    EXPECT_EQ(evaluated(1, 2), "round 1  all 2 evaluations failed: exit code 1");
    json partly = {{"count", 1}, {"of", 2}, {"reason", "exit code 2"}, {"partly", 1}};
    EXPECT_EQ(failed_evaluations_text(partly), "1 of 2 evaluations failed for some of the models: exit code 2");
    partly["count"] = 2;
    EXPECT_EQ(failed_evaluations_text(partly), "all 2 evaluations failed, 1 for some of the models: exit code 2");
    progress.apply(results(2, "leonardo", "it", {{"global", 166}}));
    EXPECT_EQ(evaluated(2, 1),
              "round 2  perplexity  it at leonardo: global 166  1 of 2 evaluations failed: exit code 1");
}

TEST(JobProgressTest, ThePictureOfALongJobStaysSmall) {
    JobProgress progress = demo_progress();
    for (int round = 0; round <= 50; ++round) {
        const char* model = round == 0 ? "base" : "global";
        progress.apply(results(round, "leonardo", "it", {{model, 100 + round}, {"leonardo", 200 + round}}));
        progress.apply(event("atoll.round.evaluated.v1", {{"round", round}}));
    }
    const std::string picture = progress.picture();
    EXPECT_LE(std::count(picture.begin(), picture.end(), '\n'), 20) << picture;
    for (const char* shown : {"base model", "round 43 global", "round 50 global", "round 50 leonardo"})
        EXPECT_NE(picture.find(shown), std::string::npos) << shown << " is missing in\n" << picture;
    EXPECT_EQ(picture.find("round 49 leonardo"), std::string::npos) << picture;
}

TEST(JobProgressTest, WhoIsInQuarantineIsToldAndNoMoreWaitedFor) {
    JobProgress progress = demo_progress();
    progress.apply(event("atoll.round.opened.v1", {{"round", 2}}));
    const std::string line =
        progress.apply(event("atoll.participant.quarantined.v1",
                             {{"round", 2}, {"facility", "karolina"}, {"refusals", 2}, {"error", "it holds NaN"}}));
    for (const char* said : {"karolina", "2 of its updates", "it holds NaN"})
        EXPECT_NE(line.find(said), std::string::npos) << line;
    progress.apply(event("atoll.round.opened.v1", {{"round", 3}}));
    EXPECT_EQ(progress.picture().find("karolina"), std::string::npos) << progress.picture();
}

TEST(JobProgressTest, WhatRunsIsNotCalledQueuedWhileItsSiteHoldsIt) {
    JobProgress progress = demo_progress();
    const json held = {{"round", 1},   {"facility", "leonardo"}, {"kind", "train"},
                       {"attempt", 1}, {"step", "running"},      {"reason", "suspended by the site"}};
    EXPECT_EQ(progress.apply(event("atoll.task.queued.v1", held)),
              "round 1  leonardo  train running, attempt 1: suspended by the site");
    EXPECT_NE(progress.picture().find("running: suspended"), std::string::npos) << progress.picture();
    EXPECT_EQ(progress.picture().find("queued"), std::string::npos) << progress.picture();
}

// Nothing that a site says begins a line.
TEST(JobProgressTest, LinesOfASiteAreIndented) {
    const std::string said = "exit 1\njob demo completed\n\nround 2 opened";
    const std::string shown = "exit 1\n    job demo completed\n    \n    round 2 opened";
    JobProgress progress = demo_progress();
    const json site = {{"round", 1}, {"facility", "leonardo"}, {"kind", "train"}, {"attempt", 1}, {"error", said}};
    for (const char* type :
         {"atoll.task.failed.v1", "atoll.task.retrying.v1", "atoll.task.waiting.v1", "atoll.participant.left_out.v1",
          "atoll.participant.quarantined.v1", "atoll.job.paused.v1", "atoll.job.failed.v1"}) {
        const std::string line = demo_progress().apply(event(type, site));
        EXPECT_NE(line.find(shown), std::string::npos) << type << ": " << line;
        EXPECT_EQ(line.find("\njob"), std::string::npos) << type << ": " << line;
    }
    const std::string queued = progress.apply(
        event("atoll.task.queued.v1", {{"round", 1}, {"facility", "leonardo"}, {"kind", "train"}, {"reason", said}}));
    EXPECT_TRUE(queued.ends_with(shown)) << queued;
    const json wait = {{"facility", "leonardo"}, {"reason", said}, {"since", "noon"}, {"cancelling", true}};
    for (const std::string& line :
         {progress.apply_waiting(json::array({wait})), progress.apply_left(json::array({wait}))})
        EXPECT_NE(line.find(shown), std::string::npos) << line;
    progress.apply(event("atoll.job.paused.v1", site));
    progress.apply_state("paused");
    const std::string picture = progress.picture();
    EXPECT_NE(picture.find("\n    job demo completed\n"), std::string::npos) << picture;
    EXPECT_EQ(picture.find("\njob"), std::string::npos) << picture;
}

TEST(JobProgressTest, AFailedJobEndsWithItsReason) {
    JobProgress progress = demo_progress();
    EXPECT_FALSE(progress.ended());
    const std::string line =
        progress.apply(event("atoll.job.failed.v1", {{"error", "round 2: no update from karolina"}}));
    EXPECT_NE(line.find("no update from karolina"), std::string::npos) << line;
    EXPECT_TRUE(progress.ended());
    EXPECT_EQ(progress.final_state(), "failed");
}

TEST(JobProgressTest, EventsOfAnUnknownKindOrWithoutDataAreIgnored) {
    JobProgress progress = demo_progress();
    EXPECT_EQ(progress.apply(event("atoll.weather.v1", json::object())), "");
    EXPECT_EQ(progress.apply(json::object()), "");
    EXPECT_FALSE(progress.ended());
}

}  // namespace
}  // namespace atl::cli
