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

}  // namespace
}  // namespace atl::dispatch
