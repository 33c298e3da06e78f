// What the trainings and evaluations of a round are given.
#include "services/dispatch/testing/job_rounds.h"

namespace atl::dispatch {
namespace {

using json::Json;

const TrainParams& train_params(JobView& job, std::int64_t round, const std::string& facility) {
    return std::get<TrainParams>(task_of(job, TaskKind::kTrain, round, facility).params);
}

TEST(RoundTrainingTest, NoRoundHasAStepAtRateZeroUnlessTheJobAsksForIt) {
    const auto warm_up_of_round_1 = [](Json training) {
        JobView job = new_job();
        Json spec = to_json(job.spec);
        spec["training"].update(std::move(training));
        job.spec = parse_job_spec(spec, JobSource::kDatabase).value();
        take(job, submit_job(job, 0));
        return train_params(job, 1, "a").training.value("warmup_from_zero", "");
    };
    EXPECT_EQ(warm_up_of_round_1({{"warmup_steps", 2}}), "off");
    EXPECT_EQ(warm_up_of_round_1({{"warmup_steps", 2}, {"warmup_from_zero", "on"}}), "on");
    EXPECT_EQ(warm_up_of_round_1({{"warmup_steps", 0}}), "") << "without a warm-up there is nothing to say";
}

}  // namespace
}  // namespace atl::dispatch
