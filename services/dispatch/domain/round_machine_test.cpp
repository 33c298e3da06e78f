#include "services/dispatch/domain/round_machine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "services/dispatch/testing/job_rounds.h"

namespace atl::dispatch {
namespace {

using json::Json;

const TrainParams& train_params(JobView& job, std::int64_t round, const std::string& facility) {
    return std::get<TrainParams>(task_of(job, TaskKind::kTrain, round, facility).params);
}

// "<digest> <which>" of each.
std::vector<std::string> evaluated_models(JobView& job, std::int64_t round, const std::string& facility) {
    std::vector<std::string> models;
    for (const auto& model : std::get<EvaluateParams>(task_of(job, TaskKind::kEvaluate, round, facility).params).models)
        models.push_back(model.digest + " " + model.which);
    return models;
}

AggregationResult refusing(JobView& job, std::int64_t round, const std::string& facility) {
    return {
        round, "g" + std::to_string(round), "", {{task_of(job, TaskKind::kTrain, round, facility).id, "it holds NaN"}}};
}

void evaluate(JobView& job, std::int64_t round) {
    for (auto& task : job.tasks) {
        if (task.kind() != TaskKind::kEvaluate || task.round != round) continue;
        task.state = TaskState::kDone;
        task.result = {{"evaluations", Json::array()}};
    }
}

std::vector<std::string> types(const JobDecision& decision) {
    std::vector<std::string> list;
    for (const auto& event : decision.events) list.push_back(event.type);
    return list;
}

std::ptrdiff_t closings(const JobDecision& decision) {
    const auto all = types(decision);
    return std::count(all.begin(), all.end(), "atoll.round.closed.v1");
}

JobView submitted() {
    JobView job = new_job();
    take(job, submit_job(job, 0));
    return job;
}

JobView aggregating() {
    JobView job = submitted();
    train_both(job);
    return job;
}

TEST(RoundMachineTest, ANewJobTrainsEveryParticipantAndEvaluatesTheBase) {
    JobView job = submitted();
    EXPECT_EQ(job.round.number, 1);
    EXPECT_EQ(std::count_if(job.tasks.begin(), job.tasks.end(),
                            [](const Task& t) { return t.kind() == TaskKind::kTrain && t.round == 1; }),
              2);
    EXPECT_EQ(evaluated_models(job, 0, "b").at(0), "base base");
    EXPECT_EQ(train_params(job, 1, "a").training.at("seed"), 7);
}

TEST(RoundMachineTest, ARoundClosesOnceAllUpdatesAreThere) {
    JobView job = submitted();
    train(job, 1, "b");
    EXPECT_TRUE(advance_job(job, 0).events.empty());
    train(job, 1, "a");
    const JobDecision decision = advance_job(job, 0);
    ASSERT_EQ(types(decision), std::vector<std::string>{"atoll.round.closed.v1"});
    const Json& data = decision.events[0].data;
    EXPECT_EQ(data.at("base"), "base");
    EXPECT_EQ(data.at("strategy"), (Json{{"name", "fedavg"}, {"weighting", "uniform"}, {"clip", 1.4}, {"drop", 3.0}}));
    EXPECT_EQ(data.at("updates").at(0).at("version"), "a1") << "in the participants' order";
    EXPECT_EQ(data.at("updates").at(1).at("tokens"), 100);
    EXPECT_NEAR(data.at("updates").at(1).at("assigned").at("effort"), 5 * 3e-4, 1e-9)
        << "five steps of the trainer's rate, whatever the site says";
    take(job, decision);
    EXPECT_EQ(job.round.state, RoundState::kAggregating);
    EXPECT_TRUE(advance_job(job, 0).events.empty()) << "it closed twice";
}

TEST(RoundMachineTest, TheAggregatedVersionOpensTheNextRoundAndIsEvaluated) {
    JobView job = aggregating();
    job.spec.evaluate_updates = true;
    const JobDecision decision = apply_aggregation(job, {1, "g1", ""}, 0);
    EXPECT_EQ(types(decision), (std::vector<std::string>{"atoll.round.aggregated.v1", "atoll.round.opened.v1"}));
    take(job, decision);
    EXPECT_EQ(job.round.number, 2);
    EXPECT_EQ(train_params(job, 2, "a").base, "g1");
    EXPECT_EQ(train_params(job, 2, "a").training.at("seed"), 8) << "another order of rows";
    EXPECT_EQ(evaluated_models(job, 1, "a"), (std::vector<std::string>{"g1 global", "a1 a", "b1 b"}));
}

TEST(RoundMachineTest, TheRateFallsFromRoundToRound) {
    const auto rate_of_round_2 = [](const char* kind) {
        JobView job = new_job();
        Json spec = to_json(job.spec);
        spec["lr_round_schedule"] = kind;
        spec["training"]["lr"] = 0.5;
        job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
        take(job, submit_job(job, 0));
        EXPECT_EQ(train_params(job, 1, "a").training.at("lr"), 0.5) << kind;
        train(job, 1, "a");
        train(job, 1, "b");
        take(job, advance_job(job, 0));
        take(job, apply_aggregation(job, {1, "g1", ""}, 0));
        return train_params(job, 2, "b").training.at("lr").get<double>();
    };
    EXPECT_DOUBLE_EQ(rate_of_round_2("constant"), 0.5);
    EXPECT_DOUBLE_EQ(rate_of_round_2("linear"), 0.25);
    EXPECT_DOUBLE_EQ(rate_of_round_2("cosine"), 0.25) << "half way down of two rounds";
    EXPECT_NEAR(rate_factor(RoundSchedule::kCosine, 2, 4), 0.853553390593, 1e-12);
    EXPECT_NEAR(rate_factor(RoundSchedule::kLinear, 4, 4), 0.25, 1e-12);
}

TEST(RoundMachineTest, ADamagedListOfRefusedUpdatesIsAnError) {
    EXPECT_EQ(parse_refused(Json::array({{{"task", "t"}, {"reason", "NaN"}}}), "refused")->size(), 1U);
    for (const Json& damaged :
         {Json("text"), Json{7}, Json{nullptr}, Json{{{"task", 7}, {"reason", "NaN"}}}, Json{{{"task", "t"}}}})
        EXPECT_EQ(parse_refused(damaged, "refused").error().field.substr(0, 7), "refused") << damaged;
}

TEST(RoundMachineTest, UpdatesTravelToOtherFacilitiesOnlyWhenTheJobSaysSo) {
    JobView job = aggregating();
    take(job, apply_aggregation(job, {1, "g1", ""}, 0));
    EXPECT_EQ(evaluated_models(job, 1, "a"), std::vector<std::string>{"g1 global"});
}

TEST(RoundMachineTest, ASecondAnswerForARoundChangesNothing) {
    JobView job = aggregating();
    EXPECT_TRUE(apply_aggregation(job, {2, "g2", ""}, 0).events.empty()) << "a round that is not open";
    take(job, apply_aggregation(job, {1, "g1", ""}, 0));
    const JobDecision again = apply_aggregation(job, {1, "other", ""}, 0);
    EXPECT_TRUE(again.events.empty() && again.rounds.empty() && again.new_tasks.empty());
}

TEST(RoundMachineTest, TheJobIsCompletedWhenTheLastEvaluationIsThere) {
    JobView job = aggregating();
    take(job, apply_aggregation(job, {1, "g1", ""}, 0));
    train(job, 2, "a");
    train(job, 2, "b");
    evaluate(job, 1);
    const JobDecision middle = advance_job(job, 0);
    EXPECT_EQ(types(middle), std::vector<std::string>{"atoll.round.closed.v1"})
        << "a model is judged beside the one before, the base";
    take(job, middle);
    take(job, apply_aggregation(job, {2, "g2", ""}, 0));
    evaluate(job, 2);
    take(job, advance_job(job, 0));
    EXPECT_EQ(job.state, JobState::kRunning) << "the base is not evaluated yet";
    evaluate(job, 0);
    const JobDecision last = advance_job(job, 0);
    EXPECT_EQ(types(last), (std::vector<std::string>{"atoll.round.evaluated.v1", "atoll.round.evaluated.v1",
                                                     "atoll.round.evaluated.v1", "atoll.job.completed.v1"}));
    EXPECT_EQ(last.events[3].data.at("version"), "g2");
    EXPECT_EQ(last.new_tasks.size(), 2U) << "each facility cleans up";
}

TEST(RoundMachineTest, AFailedEvaluationStopsNothing) {
    JobView job = submitted();
    for (auto& task : job.tasks)
        if (task.kind() == TaskKind::kEvaluate) task.state = TaskState::kFailed;
    const JobDecision decision = advance_job(job, 0);
    EXPECT_FALSE(decision.job_state);
    EXPECT_EQ(types(decision), std::vector<std::string>{"atoll.round.evaluated.v1"});
}

TEST(RoundMachineTest, ARoundTellsHowManyOfItsEvaluationsFailedAndWhy) {
    JobView job = submitted();
    Task& first = task_of(job, TaskKind::kEvaluate, 0, "a");
    Task& second = task_of(job, TaskKind::kEvaluate, 0, "b");
    const auto failed = [&] {
        const Json data = advance_job(job, 0).events.at(0).data;
        return data.value("failed_evaluations", Json());
    };
    evaluate(job, 0);
    EXPECT_EQ(failed(), nullptr);
    second.state = TaskState::kFailed;
    second.error = "b: evaluate of round 0 failed: no such tokenizer";
    EXPECT_EQ(failed(), Json({{"count", 1}, {"of", 2}, {"reason", second.error}}));
    first.state = TaskState::kFailed;
    EXPECT_EQ(failed(), Json({{"count", 2}, {"of", 2}, {"reason", second.error}}));
}

TEST(RoundMachineTest, WithoutAQuorumOneFailedTaskFailsTheJobWithItsReason) {
    JobView job = submitted();
    Task& task = task_of(job, TaskKind::kTrain, 1, "b");
    task.state = TaskState::kFailed;
    task.error = "b: train of round 1 failed at attempt 3: exit code 1: boom";
    const JobDecision decision = advance_job(job, 0);
    EXPECT_EQ(decision.job_state, JobState::kFailed);
    EXPECT_EQ(decision.job_error, task.error);
    JobView failed = job;
    take(failed, decision);
    EXPECT_EQ(failed.round.state, RoundState::kFailed);
    EXPECT_EQ(failed.round.error, task.error);
    const auto cancelled = decision.cancelled_tasks;
    EXPECT_EQ(std::count(cancelled.begin(), cancelled.end(), task_of(job, TaskKind::kTrain, 1, "a").id), 1);
}

TEST(RoundMachineTest, AQuorumGoesOnWithoutTheLost) {
    JobView job = new_job();
    job.spec.quorum = 1;
    take(job, submit_job(job, 0));
    task_of(job, TaskKind::kTrain, 1, "b").state = TaskState::kFailed;
    EXPECT_TRUE(advance_job(job, 0).events.empty()) << "the other one still trains";
    train(job, 1, "a");
    const JobDecision decision = advance_job(job, 0);
    EXPECT_EQ(decision.events.at(0).data.at("updates").size(), 1U);
}

TEST(RoundMachineTest, AfterTheDeadlineAQuorumClosesTheRoundAndCancelsTheSlow) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.round_deadline_s = 10;
    take(job, submit_job(job, 1000));
    evaluate(job, 0);
    take(job, advance_job(job, 2000));
    train(job, 1, "a");
    EXPECT_TRUE(advance_job(job, 10999).events.empty());
    const JobDecision decision = advance_job(job, 11000);
    EXPECT_EQ(types(decision), (std::vector<std::string>{"atoll.task.cancelled.v1", "atoll.round.closed.v1"}));
    EXPECT_EQ(decision.cancelled_tasks, std::vector<std::string>{task_of(job, TaskKind::kTrain, 1, "b").id});
}

// Three facilities, of which two updates are enough.
JobView with_quorum_of_two() {
    JobView job = new_job();
    Json spec = to_json(job.spec);
    Json third = spec["participants"][0];
    third["facility"] = "c";
    spec["participants"].push_back(third);
    spec["evaluation"] = {{"at", Json::array()}};
    spec["quorum"] = 2;
    spec["grace_s"] = 60;
    job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
    take(job, submit_job(job, 0));
    return job;
}

TEST(RoundMachineTest, OnceTheQuorumIsInTheOthersHaveTheGraceAndNoMore) {
    JobView job = with_quorum_of_two();
    train(job, 1, "a");
    const JobDecision before = advance_job(job, 1000);
    EXPECT_TRUE(before.rounds.empty()) << "the deadline is as it was";
    train(job, 1, "b");
    take(job, advance_job(job, 2000));
    EXPECT_EQ(job.round.deadline_ms, 62000);
    take(job, advance_job(job, 30000));
    EXPECT_EQ(job.round.deadline_ms, 62000) << "what happens meanwhile does not move it";
    EXPECT_EQ(closings(advance_job(job, 61999)), 0);
    Task& slow = task_of(job, TaskKind::kTrain, 1, "c");
    slow.attempt.emplace().step = Step::kQueued;
    const JobDecision decision = advance_job(job, 62000);
    EXPECT_EQ(types(decision), (std::vector<std::string>{"atoll.task.cancelled.v1", "atoll.round.closed.v1"}));
    EXPECT_EQ(decision.cancelled_tasks, std::vector<std::string>{slow.id});
    EXPECT_EQ(decision.reasons.at(slow.id), "the round went on without it: it was queued");
    EXPECT_EQ(decision.events[0].data.at("error"), decision.reasons.at(slow.id));
    EXPECT_EQ(decision.events[0].data.at("facility"), "c");
}

TEST(RoundMachineTest, AQuorumIsNotWaitedForLongerThanTheDeadline) {
    JobView job = with_quorum_of_two();
    const std::int64_t deadline_ms = *job.round.deadline_ms;
    train(job, 1, "a");
    train(job, 1, "b");
    take(job, advance_job(job, deadline_ms - 1000));
    EXPECT_EQ(job.round.deadline_ms, deadline_ms);
}

TEST(RoundMachineTest, ASiteThatHasBeenSilentForTheGraceIsNotWaitedFor) {
    JobView job = with_quorum_of_two();
    job.waiting_since_ms["c"] = 1000;
    train(job, 1, "a");
    EXPECT_EQ(closings(advance_job(job, 500'000)), 0) << "the quorum is not in";
    train(job, 1, "b");
    take(job, advance_job(job, 20'000));
    EXPECT_EQ(closings(advance_job(job, 60'999)), 0);
    Task& dead = task_of(job, TaskKind::kTrain, 1, "c");
    dead.attempt.emplace().error = "ssh: no such host";
    const JobDecision decision = advance_job(job, 61'000);
    EXPECT_EQ(closings(decision), 1) << "long before the quorum's grace is over";
    EXPECT_EQ(decision.reasons.at(dead.id),
              "the round went on without it: the site has not answered for 1 m 00 s: ssh: no such host");
    take(job, decision);
    take(job, apply_aggregation(job, {1, "g1", ""}, 62'000));
    train(job, 2, "a");
    train(job, 2, "b");
    EXPECT_EQ(closings(advance_job(job, 63'000)), 1) << "in the next round it is not waited for at all";
    job.waiting_since_ms.clear();
    EXPECT_EQ(closings(advance_job(job, 63'000)), 0) << "but for it having answered";
}

TEST(RoundMachineTest, ASilentSiteCostsNoOtherItsGrace) {
    JobView job = with_quorum_of_two();
    job.spec.quorum = 1;
    job.waiting_since_ms["c"] = 0;
    train(job, 1, "a");
    take(job, advance_job(job, 100'000));
    EXPECT_EQ(job.round.state, RoundState::kTraining) << "b answers";
    train(job, 1, "b");
    EXPECT_EQ(closings(advance_job(job, 101'000)), 1);
}

// The evaluation of a job's only round at `sites` places, closed at 0.
JobView evaluating(std::size_t sites) {
    JobView job = aggregating();
    job.spec.rounds = 1;
    job.spec.evaluation_grace_s = 60;
    job.closed.clear();
    std::erase_if(job.tasks, [](const Task& task) { return task.kind() == TaskKind::kEvaluate; });
    job.spec.evaluation_copies.resize(sites);
    for (std::size_t i = 0; i < sites; ++i) job.spec.evaluation_copies[i].facility = "e" + std::to_string(i);
    take(job, apply_aggregation(job, {1, "g1", ""}, 0));
    return job;
}

TEST(RoundMachineTest, OnceHalfOfTheEvaluationsAreThereTheOthersHaveAsLongAgain) {
    JobView job = evaluating(4);
    const auto evaluate_at = [&](const char* site, std::int64_t now_ms) {
        task_of(job, TaskKind::kEvaluate, 1, site).state = TaskState::kDone;
        take(job, advance_job(job, now_ms));
        return *job.closed.at(0).evaluate_by_ms;
    };
    EXPECT_EQ(evaluate_at("e0", 10'000), kRoundDeadline_s * 1000);
    EXPECT_EQ(evaluate_at("e1", 100'000), 200'000);
    EXPECT_EQ(evaluate_at("e2", 150'000), 200'000) << "it is said once";
    EXPECT_FALSE(advance_job(job, 199'999).job_state);
    const JobDecision decision = advance_job(job, 200'000);
    EXPECT_EQ(decision.job_state, JobState::kCompleted);
    EXPECT_EQ(types(decision), (std::vector<std::string>{"atoll.task.cancelled.v1", "atoll.round.evaluated.v1",
                                                         "atoll.job.completed.v1"}));
    EXPECT_EQ(decision.reasons.at(task_of(job, TaskKind::kEvaluate, 1, "e3").id),
              "the evaluation went on without it: it was pending");
    JobView more = evaluating(4);
    more.spec.rounds = 2;
    for (const char* site : {"e0", "e1"}) task_of(more, TaskKind::kEvaluate, 1, site).state = TaskState::kDone;
    EXPECT_TRUE(advance_job(more, 100'000).rounds.empty()) << "nobody needs them while the job trains";
    JobView quick = evaluating(2);
    task_of(quick, TaskKind::kEvaluate, 1, "e0").state = TaskState::kDone;
    take(quick, advance_job(quick, 10'000));
    EXPECT_EQ(*quick.closed.at(0).evaluate_by_ms, 70'000) << "the grace at least";
}

TEST(RoundMachineTest, AnEvaluationAtASilentSiteIsGivenUpWhereNoOtherIsUnderWay) {
    JobView job = evaluating(1);
    EXPECT_FALSE(advance_job(job, 300'000).job_state) << "it may wait in a queue";
    job.waiting_since_ms["e0"] = 300'000;
    EXPECT_FALSE(advance_job(job, 359'999).job_state);
    JobView paused = job;
    paused.state = JobState::kPaused;
    EXPECT_FALSE(advance_job(paused, 360'000).job_state) << "nobody asks it";
    EXPECT_EQ(advance_job(job, 360'000).job_state, JobState::kCompleted);
}

TEST(RoundMachineTest, ADeadlineWithoutEnoughUpdatesFailsTheJob) {
    JobView job = new_job();
    job.spec.round_deadline_s = 10;
    take(job, submit_job(job, 0));
    train(job, 1, "a");
    const JobDecision decision = advance_job(job, 10000);
    EXPECT_EQ(decision.job_state, JobState::kFailed);
    for (const char* said : {"round 1 ", "deadline", "1 of 2"})
        EXPECT_NE(decision.job_error.find(said), std::string::npos) << decision.job_error;
}

TEST(RoundMachineTest, AQuorumJobCompletesWithoutAFacilityThatIsLostFromRoundTwoOn) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.round_deadline_s = 10;
    take(job, submit_job(job, 0));
    evaluate(job, 0);
    train(job, 1, "a");
    train(job, 1, "b");
    take(job, advance_job(job, 1000));
    take(job, apply_aggregation(job, {1, "g1", ""}, 2000));
    task_of(job, TaskKind::kEvaluate, 1, "a").state = TaskState::kDone;
    task_of(job, TaskKind::kEvaluate, 1, "a").result = {{"evaluations", Json::array()}};
    train(job, 2, "a");
    const JobDecision late = advance_job(job, 12000);
    EXPECT_EQ(types(late), (std::vector<std::string>{"atoll.task.cancelled.v1", "atoll.round.evaluated.v1",
                                                     "atoll.task.cancelled.v1", "atoll.round.closed.v1"}));
    EXPECT_EQ(late.events[1].data,
              (Json{{"job", "j"},
                    {"name", "n"},
                    {"round", 1},
                    {"failed_evaluations",
                     {{"count", 1}, {"of", 2}, {"reason", "the evaluation went on without it: it was pending"}}}}))
        << "what a found was told";
    EXPECT_EQ(late.cancelled_tasks, (std::vector<std::string>{task_of(job, TaskKind::kEvaluate, 1, "b").id,
                                                              task_of(job, TaskKind::kTrain, 2, "b").id}));
    take(job, late);
    take(job, apply_aggregation(job, {2, "g2", ""}, 13000));
    EXPECT_TRUE(advance_job(job, 22999).events.empty()) << "its evaluations have their time";
    const JobDecision last = advance_job(job, 23000);
    EXPECT_EQ(types(last), (std::vector<std::string>{"atoll.task.cancelled.v1", "atoll.task.cancelled.v1",
                                                     "atoll.round.evaluated.v1", "atoll.job.completed.v1"}));
}

TEST(RoundMachineTest, NothingIsLateWhileTheJobIsPaused) {
    JobView job = new_job();
    job.spec.round_deadline_s = 10;
    take(job, submit_job(job, 0));
    job.state = JobState::kPaused;
    const JobDecision paused = advance_job(job, 20000);
    EXPECT_FALSE(paused.job_state);
    EXPECT_TRUE(paused.events.empty()) << "not its evaluations either";
    job.state = JobState::kRunning;
    EXPECT_EQ(advance_job(job, 20000).job_state, JobState::kFailed);
}

TEST(RoundMachineTest, AnUpdateThatComesAfterTheRoundClosedDoesNotCount) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.round_deadline_s = 10;
    job.spec.evaluate_updates = true;
    take(job, submit_job(job, 0));
    train(job, 1, "b");
    take(job, advance_job(job, 10000));
    EXPECT_EQ(job.round.accepted, std::vector<std::string>{task_of(job, TaskKind::kTrain, 1, "b").id});
    train(job, 1, "a");
    take(job, apply_aggregation(job, {1, "g1", ""}, 11000));
    EXPECT_EQ(evaluated_models(job, 1, "a"), (std::vector<std::string>{"g1 global", "b1 b"}));
}

TEST(RoundMachineTest, ARoundWithoutAnAnswerIsToldAgainWithTheSameUpdatesUntilThereIsOne) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.round_deadline_s = 10;
    take(job, submit_job(job, 0));
    train(job, 1, "b");
    const JobDecision closing = advance_job(job, 10000);
    take(job, closing);
    train(job, 1, "a");  // too late
    const std::int64_t patience_ms = kAggregationPatience_s * 1000;
    ASSERT_EQ(job.round.state, RoundState::kAggregating);
    EXPECT_TRUE(advance_job(job, 10000 + patience_ms - 1).repeats.empty());
    const JobDecision again = advance_job(job, 10000 + patience_ms);
    EXPECT_EQ(closings(again), 0) << "whoever watches has seen it";
    ASSERT_EQ(again.repeats.size(), 1U);
    EXPECT_EQ(again.repeats[0].type, "atoll.round.closed.v1");
    EXPECT_EQ(again.repeats[0].data, closing.events.back().data);
    take(job, again);
    EXPECT_TRUE(advance_job(job, 10000 + patience_ms).repeats.empty()) << "patience again";
    take(job, apply_aggregation(job, {1, "g1", ""}, 10000 + patience_ms));
    EXPECT_TRUE(advance_job(job, 10000 + 9 * patience_ms).repeats.empty());
}

TEST(RoundMachineTest, OfManyInQuarantineAFewAreNamed) {
    JobView job = new_job();
    job.spec.quarantine_after = 1;
    for (int i = 0; i < 18; ++i) {
        job.spec.participants.push_back(job.spec.participants[0]);
        job.spec.participants.back().data.facility = "more-" + std::to_string(i);
    }
    take(job, submit_job(job, 0));
    AggregationResult result{1, "g1", ""};
    for (const auto& participant : job.spec.participants) {
        train(job, 1, participant.data.facility);
        result.refused.push_back(
            {task_of(job, TaskKind::kTrain, 1, participant.data.facility).id, std::string(500, 'x')});
    }
    take(job, advance_job(job, 0));
    const JobDecision decision = apply_aggregation(job, result, 0);
    EXPECT_EQ(decision.job_state, JobState::kFailed);
    EXPECT_LT(decision.job_error.size(), 8U * 600);
    EXPECT_TRUE(decision.job_error.ends_with("; and 12 more")) << decision.job_error;
}

TEST(RoundMachineTest, AnUpdateThatTheAggregationLeftOutIsNamedAndNoLongerCounts) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.evaluate_updates = true;
    take(job, submit_job(job, 0));
    train(job, 1, "a");
    train(job, 1, "b");
    const JobDecision closing = advance_job(job, 0);
    EXPECT_EQ(closing.events.back().data.at("quorum"), 1);
    take(job, closing);
    const std::string bad = task_of(job, TaskKind::kTrain, 1, "b").id;
    const JobDecision decision = apply_aggregation(job, {1, "g1", "", {{bad, "holds NaN"}}}, 0);
    ASSERT_EQ(decision.events.front().type, "atoll.task.refused.v1");
    EXPECT_EQ(decision.events.front().data.at("facility"), "b");
    EXPECT_EQ(decision.events.front().data.at("error"), "holds NaN");
    take(job, decision);
    EXPECT_EQ(evaluated_models(job, 1, "a"), (std::vector<std::string>{"g1 global", "a1 a"}));
    EXPECT_EQ(train_params(job, 2, "b").base, "g1") << "it goes on in the next round";
}

TEST(RoundMachineTest, AFailedAggregationFailsTheJobWithItsReason) {
    JobView job = aggregating();
    const JobDecision decision = apply_aggregation(job, {1, "", "shapes differ"}, 0);
    EXPECT_EQ(decision.job_state, JobState::kFailed);
    EXPECT_TRUE(decision.job_error.ends_with(": shapes differ")) << decision.job_error;
    take(job, decision);
    EXPECT_EQ(job.round.state, RoundState::kFailed);
    EXPECT_EQ(job.round.error, decision.job_error);
}

TEST(RoundMachineTest, CancellingEndsEverythingThatRuns) {
    JobView job = submitted();
    train(job, 1, "a");
    const JobDecision decision = cancel_job(job);
    EXPECT_EQ(decision.job_state, JobState::kCancelled);
    EXPECT_EQ(decision.cancelled_tasks.size(), 3U) << "one training and two evaluations";
    take(job, decision);
    EXPECT_FALSE(cancel_job(job).job_state) << "once is enough";
}

std::vector<std::string> trained_by(const JobDecision& decision) {
    std::vector<std::string> facilities;
    for (const Task& task : decision.new_tasks)
        if (task.kind() == TaskKind::kTrain) facilities.push_back(task.facility);
    return facilities;
}

TEST(RoundMachineTest, AFacilityWhoseUpdatesAreRefusedTrainsNoMore) {
    JobView job = new_job();
    job.spec.rounds = 3;
    job.spec.quorum = 1;
    take(job, submit_job(job, 0));
    for (const std::int64_t round : {1, 2}) {
        for (const char* facility : {"a", "b"}) train(job, round, facility);
        take(job, advance_job(job, 0));
        const JobDecision closed = apply_aggregation(job, refusing(job, round, "a"), 0);
        const bool is_told = std::any_of(closed.events.begin(), closed.events.end(), [](const DomainEvent& event) {
            return event.type == "atoll.participant.quarantined.v1" && event.data.at("facility") == "a" &&
                   event.data.at("refusals") == 2 && event.data.at("error") == "it holds NaN";
        });
        EXPECT_EQ(is_told, round == 2);
        EXPECT_EQ(trained_by(closed),
                  round == 1 ? (std::vector<std::string>{"a", "b"}) : std::vector<std::string>{"b"});
        take(job, closed);
        EXPECT_EQ(is_quarantined(job, "a"), round == 2);
    }
    train(job, 3, "b");
    take(job, advance_job(job, 0));
    EXPECT_EQ(job.round.state, RoundState::kAggregating) << "nobody waits for a";
}

TEST(RoundMachineTest, WhatTheStoreHasLostIsNotHeldAgainstTheSite) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.quarantine_after = 1;
    take(job, submit_job(job, 0));
    for (const char* facility : {"a", "b"}) train(job, 1, facility);
    take(job, advance_job(job, 0));
    AggregationResult answer = refusing(job, 1, "a");
    answer.refused =
        parse_refused({{{"task", answer.refused[0].task}, {"reason", "rotten"}, {"fault", "store"}}}, "r").value();
    take(job, apply_aggregation(job, answer, 0));
    EXPECT_FALSE(is_quarantined(job, "a"));
    EXPECT_EQ(train_params(job, 2, "a").base, "g1");
}

TEST(RoundMachineTest, AFacilityInQuarantineTrainsAgainOnceItIsReadmitted) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.quarantine_after = 1;
    take(job, submit_job(job, 0));
    EXPECT_TRUE(types(readmit(job, "a")).empty()) << "it is in none";
    take(job, count_refused_update(job, "a", "NaN"));
    EXPECT_TRUE(is_quarantined(job, "a"));
    const JobDecision decision = readmit(job, "a");
    EXPECT_EQ(types(decision), std::vector<std::string>{"atoll.participant.readmitted.v1"});
    take(job, decision);
    EXPECT_FALSE(is_quarantined(job, "a"));
    for (const char* facility : {"a", "b"}) train(job, 1, facility);
    take(job, advance_job(job, 0));
    EXPECT_EQ(trained_by(apply_aggregation(job, {1, "g1", ""}, 0)), (std::vector<std::string>{"a", "b"}));
}

TEST(RoundMachineTest, AJobFailsWhereTheQuarantineLeavesTooFew) {
    JobView job = new_job();
    job.spec.quorum = 1;
    job.spec.quarantine_after = 1;
    take(job, submit_job(job, 0));
    const JobDecision counted = count_refused_update(job, "b", "another's version");
    EXPECT_EQ(counted.events.at(0).type, "atoll.participant.quarantined.v1");
    take(job, counted);
    for (const char* facility : {"a", "b"}) train(job, 1, facility);
    take(job, advance_job(job, 0));
    const JobDecision closed = apply_aggregation(job, refusing(job, 1, "a"), 0);
    EXPECT_EQ(closed.job_state, JobState::kFailed);
    for (const char* said : {"a is in quarantine", "it holds NaN", "b is in quarantine", "another's version"})
        EXPECT_NE(closed.job_error.find(said), std::string::npos) << closed.job_error;
    EXPECT_TRUE(trained_by(closed).empty());
}

}  // namespace
}  // namespace atl::dispatch
