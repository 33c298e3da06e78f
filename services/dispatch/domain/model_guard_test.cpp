#include "services/dispatch/domain/model_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace atl::dispatch {
namespace {

using json::Json;

// A job of so many participants, "a", "b", …, each of which evaluates, after its submission.
struct Game {
    explicit Game(int participants, const Json& evaluation = nullptr, std::int64_t rounds = 4) {
        Json spec = {{"name", "n"},
                     {"model", {{"name", "m"}, {"version", "v"}}},
                     {"rounds", rounds},
                     {"evaluation", evaluation},
                     {"participants", Json::array()},
                     {"training", {{"steps", 5}}}};
        for (int i = 0; i < participants; ++i)
            spec["participants"].push_back(
                {{"facility", std::string(1, static_cast<char>('a' + i))}, {"dataset", "d"}});
        job.id = "j";
        job.spec = parse_job_spec(spec).value();
        job.base = "base";
        take(submit_job(job, 0));
        evaluate(0, std::vector<double>(static_cast<std::size_t>(participants), 100));
    }

    // Plays the database.
    void take(const JobDecision& decision) {
        last = decision;
        if (decision.job_state) job.state = *decision.job_state;
        if (decision.spoiled) job.spoiled = *decision.spoiled;
        if (decision.judged_until) job.judged_until = *decision.judged_until;
        for (const auto& [facility, record] : decision.records) job.records[facility] = record;
        for (const Round& round : decision.rounds) {
            std::erase_if(all, [&](const Round& other) { return other.number == round.number; });
            all.push_back(round);
            std::erase_if(job.closed, [&](const Round& other) { return other.number == round.number; });
            if (round.state == RoundState::kClosed && !round.evaluated) job.closed.push_back(round);
            if (round.number >= job.round.number) job.round = round;
        }
        const auto by_number = [](const Round& a, const Round& b) { return a.number < b.number; };
        std::sort(all.begin(), all.end(), by_number);
        std::sort(job.closed.begin(), job.closed.end(), by_number);
        for (Task task : decision.new_tasks) {
            task.id = "t" + std::to_string(job.tasks.size());
            job.tasks.push_back(task);
        }
        for (Task& task : job.tasks)
            if (std::find(decision.cancelled_tasks.begin(), decision.cancelled_tasks.end(), task.id) !=
                decision.cancelled_tasks.end())
                task.state = TaskState::kCancelled;
    }

    // What each participant's evaluation of a round says, in their order; 0: it has not ended. Infinity: null.
    void evaluate(std::int64_t round, const std::vector<double>& perplexities) {
        for (Task& task : job.tasks) {
            const auto* params = std::get_if<EvaluateParams>(&task.params);
            if (params == nullptr || task.round != round) continue;
            const double found = perplexities.at(static_cast<std::size_t>(task.facility[0] - 'a'));
            if (found == 0) continue;
            task.state = TaskState::kDone;
            const Json number = std::isfinite(found) ? Json(found) : Json();
            task.result = {{"dataset", params->dataset},
                           {"evaluations", {{{"model", params->models[0].digest}, {"perplexity", number}}}}};
        }
        take(advance_job(job, 0));
    }

    // All train, and the aggregation makes the model "g<round>", by these figures of the updates.
    void train(const std::vector<Json>& measured = {}) {
        for (Task& task : job.tasks) {
            if (task.kind() != TaskKind::kTrain || task.round != job.round.number) continue;
            task.state = TaskState::kDone;
            task.result = {{"version", task.facility}, {"samples", 10}, {"tokens", 100}};
        }
        take(advance_job(job, 0));
        AggregationResult result{job.round.number, "g" + std::to_string(job.round.number), "", {}};
        for (const Task* task : accepted_updates(job)) {
            Json one = {{"facility", task->facility}, {"version", task->facility}, {"weight", 0.5}};
            if (!measured.empty()) one.update(measured.at(static_cast<std::size_t>(task->facility[0] - 'a')));
            result.contributions.push_back(std::move(one));
        }
        take(apply_aggregation(job, result, 0));
    }

    Status resume(const ResumeOrder& order) {
        auto decision = resume_job(job, all, order);
        if (!decision.ok()) return decision.error();
        take(*decision);
        return {};
    }

    const Json& event(const std::string& type) const {
        for (const DomainEvent& one : last.events)
            if (one.type == type) return one.data;
        static const Json kNone;
        return kNone;
    }

    JobView job;
    std::vector<Round> all;
    JobDecision last;
};

Json figures(double norm, double cosine, double counted) {
    return {{"norm", norm}, {"cosine", cosine}, {"counted", counted}};
}

TEST(ModelGuardTest, AModelThatGotWorseByHalfAtAMajorityPausesTheJobAtTheLastGoodOne) {
    Game game(3);
    game.train();
    game.evaluate(1, {80, 80, 80});
    game.train({figures(20, 0.4, 1), figures(90, -0.9, 0.3), figures(22, 0.5, 1)});
    game.evaluate(2, {130, 0, 0});
    EXPECT_EQ(game.job.state, JobState::kRunning) << "one of three says nothing";
    game.evaluate(2, {130, 121, 0});
    EXPECT_EQ(game.job.state, JobState::kPaused);
    EXPECT_EQ(game.job.round.number, 3);
    EXPECT_EQ(game.job.round.state, RoundState::kCancelled) << "what was begun from it";
    EXPECT_EQ(game.last.cancelled_tasks.size(), 3U);
    const Json& told = game.event("atoll.job.paused.v1");
    EXPECT_EQ(told.at("round"), 2);
    EXPECT_EQ(told.at("good_round"), 1);
    EXPECT_EQ(told.at("outlier"), "b");
    EXPECT_EQ(told.at("sites"), Json::parse(R"([{"facility": "a", "before": 80, "after": 130},
                                                {"facility": "b", "before": 80, "after": 121}])"));
    for (const char* said : {"round 2", "round 1", "a finds the perplexity 130 after 80", "the update of b stands out"})
        EXPECT_NE(told.at("error").get<std::string>().find(said), std::string::npos) << told.at("error");
    game.evaluate(2, {130, 121, 300});
    EXPECT_EQ(game.job.state, JobState::kPaused) << "and says so once";
    EXPECT_TRUE(game.event("atoll.job.paused.v1").is_null());
}

TEST(ModelGuardTest, NoUpdateStandsOutThatIsLikeTheOthers) {
    const auto outlier = [](const std::vector<Json>& measured) {
        Round round;
        round.contributions = Json::array();
        for (const Json& one : measured) {
            round.contributions.push_back(one);
            round.contributions.back()["facility"] =
                std::string(1, static_cast<char>('a' + round.contributions.size() - 1));
        }
        return find_outlier(round);
    };
    EXPECT_EQ(outlier({figures(20, 0.9, 1), figures(20.1, 0.9, 1)}), "");
    EXPECT_EQ(outlier({figures(20, 0.9, 1), figures(29, 0.9, 1)}), "b");
    EXPECT_EQ(outlier({figures(20, 0.1, 1), figures(21, 0.2, 1), figures(22, 0.3, 1)}), "");
    EXPECT_EQ(outlier({figures(20, -0.9, 1), figures(21, 0.2, 1), figures(22, 0.3, 1)}), "a");
    EXPECT_EQ(outlier({figures(20, 0.9, 1), figures(21, 0.9, 0.8)}), "b");
    EXPECT_EQ(outlier({Json::object(), Json::object()}), "") << "nothing was measured";
    const auto with_variate = [](Json one, double norm) {
        one["control_variate_norm"] = norm;
        return one;
    };
    EXPECT_EQ(outlier({with_variate(figures(29, 0.9, 1), 1), with_variate(figures(20, 0.9, 1), 9)}), "b");
    EXPECT_EQ(outlier({with_variate(figures(29, 0.9, 1), 1), with_variate(figures(20, 0.9, 1), 1.2)}), "a");
    EXPECT_EQ(outlier({with_variate(figures(29, 0.9, 0.7), 1), with_variate(figures(20, 0.9, 1), 9)}), "")
        << "of two it may be either";
    EXPECT_EQ(outlier({with_variate(figures(29, 0.9, 1), 1), with_variate(figures(20, 0.9, 0.7), 9)}), "b");
    EXPECT_EQ(outlier({figures(90, 0, 1)}), "") << "beside no other";
    Game game(2);
    game.train({figures(20, 0.9, 1), figures(20.1, 0.9, 1)});
    game.evaluate(1, {400, 400});
    EXPECT_EQ(game.job.state, JobState::kPaused);
    EXPECT_EQ(game.job.spoiled.at("outlier"), "");
    EXPECT_EQ(game.job.spoiled.at("reason").get<std::string>().find("stands out"), std::string::npos);
}

TEST(ModelGuardTest, OneSiteOfThreeOrMorePausesNothingWhateverItSays) {
    for (const int count : {3, 4, 8}) {
        Game game(count);
        std::vector<double> said(static_cast<std::size_t>(count), 90);
        said[0] = INFINITY;
        game.train();
        game.evaluate(1, said);
        EXPECT_EQ(game.job.state, JobState::kRunning) << count;
    }
}

TEST(ModelGuardTest, OfTwoOneThatFindsItThreeTimesWorseIsEnough) {
    Game game(2);
    game.train();
    game.evaluate(1, {299, 0});
    EXPECT_EQ(game.job.state, JobState::kRunning);
    game.evaluate(1, {299, 140});
    EXPECT_EQ(game.job.state, JobState::kRunning);
    game.train();
    game.evaluate(2, {INFINITY, 0});
    EXPECT_EQ(game.job.state, JobState::kPaused);
    EXPECT_TRUE(game.job.spoiled.at("sites")[0].at("after").is_null());
    Game both(2);
    both.train();
    both.evaluate(1, {151, 151});
    EXPECT_EQ(both.job.state, JobState::kPaused) << "both by half";
}

TEST(ModelGuardTest, AModelThatGetsWorseLittleByLittleIsComparedWithTheBest) {
    Game game(2);
    game.train();
    game.evaluate(1, {50, 90});
    game.train();
    game.evaluate(2, {95, 80});
    game.train();
    game.evaluate(3, {149, 70});
    EXPECT_EQ(game.job.state, JobState::kRunning) << "below three times";
    ASSERT_TRUE(game.event("atoll.job.paused.v1").is_null());
    Game other(3);
    other.train();
    other.evaluate(1, {50, 60, 70});
    other.train();
    other.evaluate(2, {70, 55, 70});
    other.train();
    other.evaluate(3, {80, 83, 70});
    EXPECT_EQ(other.job.state, JobState::kPaused) << "at two of three by half";
    EXPECT_EQ(other.job.spoiled.at("good_round"), 1) << "the newest that was good at both";
    EXPECT_EQ(other.job.spoiled.at("sites")[1].at("before"), 55);
    ASSERT_TRUE(other.resume({.accepts = true}).ok());
    other.train();
    other.evaluate(4, {85, 85, 70});
    EXPECT_EQ(other.job.state, JobState::kRunning) << "what was accepted is what later ones are compared with";
}

TEST(ModelGuardTest, OfTwoThreeTimesTheBestIsEnoughHoweverManyRoundsItTook) {
    Game game(2, nullptr, 8);
    double found = 50;
    game.train();
    game.evaluate(1, {found, 90});
    for (int round = 2; round <= 4 && game.job.state == JobState::kRunning; ++round) {
        found *= 1.49;
        game.train();
        game.evaluate(round, {found, 80});
    }
    EXPECT_EQ(game.job.state, JobState::kPaused);
    EXPECT_EQ(game.job.spoiled.at("round"), 4) << "50, 74.5, 111, 165";
    EXPECT_EQ(game.job.spoiled.at("good_round"), 1);
}

TEST(ModelGuardTest, ItLooksWhereEveryParticipantEvaluatesUnlessTheJobSaysOtherwise) {
    const Json at_a = {{"at", {{{"facility", "a"}, {"dataset", "d"}}}}};
    Json asked = at_a;
    asked["pause_when_worse"] = true;
    for (const auto& [evaluation, pauses] :
         {std::pair<Json, bool>{nullptr, true}, {at_a, false}, {asked, true}, {{{"pause_when_worse", false}}, false}}) {
        Game game(2, evaluation);
        EXPECT_EQ(game.job.spec.pauses_when_worse(), pauses) << evaluation;
        EXPECT_EQ(parse_job_spec(to_json(game.job.spec), JobSource::kDatabase)->pauses_when_worse(), pauses);
        game.train();
        game.evaluate(1, {500, 500});
        EXPECT_EQ(game.job.state, pauses ? JobState::kPaused : JobState::kRunning) << evaluation;
    }
}

TEST(ModelGuardTest, ALateEvaluationIsCompared) {
    Game game(2);
    game.train();
    game.train();  // round 2 is made before anything is known of round 1
    game.evaluate(2, {500, 500});
    EXPECT_EQ(game.job.state, JobState::kRunning) << "nothing to compare with";
    game.evaluate(1, {90, 90});
    EXPECT_EQ(game.job.state, JobState::kPaused);
    EXPECT_EQ(game.job.spoiled.at("round"), 2);
}

TEST(ModelGuardTest, TheLastRoundIsJudgedBeforeTheJobIsCompleted) {
    Game game(2, nullptr, 1);
    game.train();
    game.evaluate(1, {400, 400});
    EXPECT_EQ(game.job.state, JobState::kPaused);
    ASSERT_TRUE(game.resume({.accepts = true}).ok());
    game.take(advance_job(game.job, 0));
    EXPECT_EQ(game.job.state, JobState::kCompleted);
}

// A job of three whose round 2 has spoiled its model.
Game spoiled() {
    Game game(3);
    game.train();
    game.evaluate(1, {80, 80, 80});
    game.train({figures(20, 0.4, 1), figures(90, -0.9, 0), figures(22, 0.5, 1)});
    game.evaluate(2, {300, 300, 300});
    EXPECT_EQ(game.job.state, JobState::kPaused);
    return game;
}

const TrainParams& training(const Game& game, std::int64_t round, const std::string& facility) {
    for (const Task& task : game.job.tasks)
        if (task.kind() == TaskKind::kTrain && task.round == round && task.facility == facility)
            return std::get<TrainParams>(task.params);
    static const TrainParams kNone;
    return kNone;
}

TEST(ModelGuardTest, WithoutAFacilityTheJobGoesOnFromTheLastGoodModel) {
    Game game = spoiled();
    ASSERT_TRUE(game.resume({.without = {"b"}}).ok());
    EXPECT_EQ(game.job.state, JobState::kRunning);
    EXPECT_TRUE(game.job.spoiled.is_null());
    EXPECT_EQ(game.event("atoll.participant.left_out.v1").at("facility"), "b");
    EXPECT_EQ(game.job.round.number, 4) << "a number is never used twice";
    EXPECT_EQ(game.job.round.index, 2) << "it stands for the round that was spoiled";
    EXPECT_EQ(game.job.round.base, "g1");
    EXPECT_EQ(training(game, 4, "b").base, "") << "it trains no more";
    EXPECT_EQ(training(game, 4, "a").state_round, 1) << "what it keeps goes back as well";
    EXPECT_EQ(training(game, 3, "a").state_round, 2);
    EXPECT_EQ(training(game, 3, "b").state_round, 1) << "its update of round 2 did not count";
    game.train();
    EXPECT_EQ(game.job.round.number, 5) << "two updates are all that it can get, and enough";
    game.evaluate(4, {70, 70, 70});
    game.train();
    game.evaluate(5, {60, 60, 60});
    game.train();
    game.evaluate(6, {60, 60, 60});
    EXPECT_EQ(game.job.state, JobState::kCompleted) << "after four rounds that count";
}

TEST(ModelGuardTest, AnAcceptedModelIsNotJudgedAgain) {
    Game game = spoiled();
    ASSERT_TRUE(game.resume({.accepts = true}).ok());
    EXPECT_EQ(game.job.round.base, "g2");
    EXPECT_EQ(game.job.round.index, 3);
    game.take(advance_job(game.job, 0));
    EXPECT_EQ(game.job.state, JobState::kRunning);
    game.train();
    game.evaluate(4, {290, 290, 290});
    EXPECT_EQ(game.job.state, JobState::kRunning);
    game.train();
    game.evaluate(5, {900, 900, 900});
    EXPECT_EQ(game.job.state, JobState::kPaused) << "later ones are";
    EXPECT_EQ(game.job.spoiled.at("good_round"), 4);
}

TEST(ModelGuardTest, AJobGoesBackToAnyRoundThatMadeAModel) {
    Game game = spoiled();
    ASSERT_TRUE(game.resume({.from_round = 0}).ok());
    EXPECT_EQ(game.job.round.base, "base");
    EXPECT_EQ(game.job.round.index, 1);
    EXPECT_EQ(training(game, 4, "a").state_round, 0);
    for (const Round& round : game.all)
        EXPECT_EQ(round.error.empty(), round.number == 0 || round.number == 4) << round.number << ": " << round.error;
}

TEST(ModelGuardTest, WhatAnOrderLacksOrSaysWronglyIsNamed) {
    Game game = spoiled();
    const auto error = [&](const ResumeOrder& order) { return game.resume(order).error(); };
    EXPECT_NE(error({}).message.find("--accept, --without FACILITY or --from-round N"), std::string::npos);
    EXPECT_EQ(error({.without = {"z"}}).field, "without");
    EXPECT_EQ(error({.without = {"a", "b", "c"}}).field, "without") << "nobody is left";
    EXPECT_EQ(error({.from_round = 3}).field, "from_round") << "it was cancelled";
    EXPECT_EQ(error({.from_round = 9}).field, "from_round");
    EXPECT_EQ(error({.accepts = true, .without = {"a"}}).field, "accept");
    EXPECT_EQ(game.job.state, JobState::kPaused);
    Game paused(2);
    paused.job.state = JobState::kPaused;
    EXPECT_EQ(paused.resume({.accepts = true}).error().message, "no model waits to be accepted; leave --accept out");
    Game running(2);
    EXPECT_EQ(running.resume({.accepts = true}).error().field, "state");
}

TEST(ModelGuardTest, AFacilityThatWasLeftOutIsReadmitted) {
    Game game = spoiled();
    ASSERT_TRUE(game.resume({.without = {"b"}}).ok());
    game.take(readmit(game.job, "b"));
    EXPECT_EQ(game.event("atoll.participant.readmitted.v1").at("facility"), "b");
    game.train();
    EXPECT_EQ(training(game, 5, "b").base, "g4");
    EXPECT_EQ(training(game, 5, "b").state_round, 1);
}

TEST(ModelGuardTest, OfManyParticipantsNotEveryEvaluationIsLookedAt) {
    Game game(26);
    game.train();
    EXPECT_EQ(quiet_judgements(game.job, game.job.closed.back()), 13) << "the fourteenth makes a majority";
    Game few(3);
    few.train();
    EXPECT_EQ(quiet_judgements(few.job, few.job.closed.back()), 0);
}

}  // namespace
}  // namespace atl::dispatch
