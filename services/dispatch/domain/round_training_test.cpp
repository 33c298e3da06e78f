// What the trainings and evaluations of a round are given.
#include "services/dispatch/testing/job_rounds.h"

namespace atl::dispatch {
namespace {

using json::Json;

const TrainParams& training_of(JobView& job, std::int64_t round, const std::string& facility) {
    return std::get<TrainParams>(task_of(job, TaskKind::kTrain, round, facility).params);
}

TEST(RoundTrainingTest, NoRoundHasAStepAtRateZeroUnlessTheJobAsksForIt) {
    const auto warm_up_of_round_1 = [](Json training) {
        JobView job = new_job();
        Json spec = to_json(job.spec);
        spec["training"].update(std::move(training));
        job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
        take(job, submit_job(job, 0));
        return training_of(job, 1, "a").training.value("warmup_from_zero", "");
    };
    EXPECT_EQ(warm_up_of_round_1({{"warmup_steps", 2}}), "off");
    EXPECT_EQ(warm_up_of_round_1({{"warmup_steps", 2}, {"warmup_from_zero", "on"}}), "on");
    EXPECT_EQ(warm_up_of_round_1({{"warmup_steps", 0}}), "") << "without a warm-up there is nothing to say";
}

TEST(RoundTrainingTest, OneScheduleGoesOverAllRoundsWhereTheJobSaysSo) {
    JobView job = new_job();
    Json spec = to_json(job.spec);
    spec["lr_round_schedule"] = "by_step";
    spec["training"].update({{"lr", 0.5}, {"schedule", "linear"}});
    job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
    EXPECT_EQ(to_json(job.spec).at("lr_round_schedule"), "by_step");
    take(job, submit_job(job, 0));
    for (const std::int64_t round : {1, 2}) {
        const Json& settings = training_of(job, round, "a").training;
        EXPECT_EQ(settings.at("lr"), 0.5);
        EXPECT_EQ(settings.at("schedule_runs"), job.spec.rounds);
        EXPECT_EQ(settings.at("schedule_run"), round);
        if (round == 2) break;
        train_both(job);
        take(job, apply_aggregation(job, {1, "g1", ""}, 0));
    }
}

TEST(RoundTrainingTest, TokensAreCountedWhereTheStrategyWeighsRows) {
    for (const bool weighs : {false, true}) {
        JobView job = new_job();
        Json spec = to_json(job.spec);
        if (weighs) spec["strategy"]["row_weights"] = "tokens";
        job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
        take(job, submit_job(job, 0));
        EXPECT_EQ(training_of(job, 1, "a").counts_tokens, weighs);
    }
}

TEST(RoundTrainingTest, ControlVariatesAreWhatTheStrategySays) {
    for (const double part : {0.0, 0.7}) {
        JobView job = new_job();
        Json spec = to_json(job.spec);
        if (part > 0) spec["strategy"]["control_variate"] = part;
        job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
        take(job, submit_job(job, 0));
        EXPECT_EQ(training_of(job, 1, "a").control_variate, part);
    }
}

TEST(RoundTrainingTest, AJobOfAdaptersTrainsAndEvaluatesThemOnOneModel) {
    JobView job = new_job();
    job.base = "adapter";
    job.spec.adapter_of = "model";
    job.spec.training.update({{"lora_rank", 8}, {"quantize", "nf4"}});
    job.spec = parse_job_spec(to_json(job.spec), JobSource::kDatabase).value();  // as the database keeps it
    take(job, submit_job(job, 0));
    const std::string facility = "a";
    const TrainParams& train = training_of(job, 1, facility);
    EXPECT_EQ(train.base, "adapter");
    EXPECT_EQ(train.model, "model");
    EXPECT_EQ(train.training.at("lora_rank"), 8);
    const auto& evaluate = std::get<EvaluateParams>(task_of(job, TaskKind::kEvaluate, 0, "b").params);
    EXPECT_EQ(evaluate.models.at(0).digest, "adapter");
    EXPECT_EQ(evaluate.model, "model");
    EXPECT_EQ(evaluate.quantize, "nf4");
}

TEST(RoundTrainingTest, WhatKeptATrainingIsSaidWhenItsRoundIsLate) {
    JobView job = new_job();
    job.spec.round_deadline_s = 10;
    take(job, submit_job(job, 0));
    Task& held = task_of(job, TaskKind::kTrain, 1, "a");
    held.attempt.emplace().step = Step::kQueued;
    held.attempt->queue_reason = "PartitionDown (batch job 7 waits)";
    held.attempt->queue_reason_since_ms = 4000;
    Task& refused = task_of(job, TaskKind::kTrain, 1, "b");
    refused.attempt.emplace().step = Step::kSubmitting;
    refused.attempt->waiting = Waiting{"sbatch: Invalid qos", 5000, 60000};
    const JobDecision decision = advance_job(job, 10000);
    const std::string of_a =
        "it was queued and had waited since 1970-01-01T00:00:04Z: PartitionDown (batch job 7 waits)";
    const std::string of_b = "it was submitting and had waited since 1970-01-01T00:00:05Z: sbatch: Invalid qos";
    EXPECT_EQ(decision.job_error, "round 1 passed its deadline with 0 of 2 updates; a: " + of_a + "; b: " + of_b);
    EXPECT_EQ(decision.reasons.at(held.id), "round 1 passed its deadline: " + of_a);
    EXPECT_EQ(decision.reasons.at(refused.id), "round 1 passed its deadline: " + of_b);
    JobView quorum = new_job();
    quorum.spec.quorum = 1;
    quorum.spec.grace_s = 60;
    take(quorum, submit_job(quorum, 0));
    train(quorum, 1, "b");
    take(quorum, advance_job(quorum, 2000));
    Task& slow = task_of(quorum, TaskKind::kTrain, 1, "a");
    slow.attempt = held.attempt;
    EXPECT_EQ(advance_job(quorum, 62000).reasons.at(slow.id), "the round went on without it: " + of_a);
}

}  // namespace
}  // namespace atl::dispatch
