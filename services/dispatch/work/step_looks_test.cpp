// Steps that a site prints faster than it is looked at, from its files to the job's events.
#include "services/dispatch/testing/job_lifecycle_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kSteps = 60'000;

// Half of its steps at once, as many as half a minute has of a millisecond each, and the others after a look or two.
constexpr const char* kFastTrainer = R"sh(#!/bin/sh
[ "$1" = train ] || { echo '{"loss":2.0,"perplexity":7.389,"tokens":1000}'; exit; }
while [ $# -gt 0 ]; do
    case $1 in --out) out=$2 ;; --model) model=$2 ;; esac
    shift
done
mkdir -p "$out"
cp "$model/config.json" "$out/model"
awk -v steps=%STEPS% 'BEGIN {
    for (step = 1; step <= steps; ++step) {
        printf "{\"step\":%d,\"loss\":%.3f,\"lr\":0.1,\"tokens_per_s\":100.5,\"time_unix_s\":%.3f}\n", step, 5 + step % 7,
            1e9 + step / 1000
        if (step == steps / 2) { fflush(); system("sleep 5") }
    }
}'
echo '{"summary":true,"steps":%STEPS%,"samples":960000,"tokens":122880000,"loss":7.5,"tokens_per_s":100.5,"wall_s":30}'
)sh";

class StepLooksTest : public JobLifecycleTest {
  protected:
    // All events of the job, page by page.
    std::vector<Json> events_of(const std::string& job) {
        std::vector<Json> events;
        for (std::string after = "0";;) {
            const Json page = get("/v1/jobs/" + job + "/events?limit=100&after=" + after);
            if (page.at("items").empty()) return events;
            for (const Json& event : page.at("items")) events.push_back(event);
            after = std::to_string(events.back().at("number").get<std::int64_t>());
        }
    }
    bool has_trained(const std::string& job) {
        auto connection = connect();
        return eventually([&] {
            return connection
                       .query("SELECT 1 FROM tasks WHERE kind = 'train' AND state = 'done' AND job_id = $1", {job})
                       ->size() == 1;
        });
    }
};

TEST_F(StepLooksTest, AllStepsOfATrainingThatIsLookedAtSeldomReachTheEvents) {
    std::string trainer = kFastTrainer;
    for (const std::string mark = "%STEPS%"; trainer.find(mark) != std::string::npos;)
        trainer.replace(trainer.find(mark), mark.size(), std::to_string(kSteps));
    ASSERT_TRUE(write_file_atomic(fake("atoll-trainer"), trainer, 0755).ok());
    poll_ms_ = 2000;
    begin();
    Json request = job_request(1);
    request["participants"].erase(1);
    request["training"]["steps"] = kSteps;
    const std::string job = submit(request);
    ASSERT_TRUE(has_trained(job)) << get("/v1/jobs/" + job + "/rounds").dump(2);
    std::vector<std::int64_t> told;
    for (const Json& event : events_of(job)) {
        if (event.at("type") != "atoll.task.progress.v1") continue;
        const Json& data = event.at("data");
        if (!data.contains("points")) told.push_back(data.at("step"));
        for (const Json& step : data.contains("points") ? data.at("points").at("step") : Json::array())
            told.push_back(step);
    }
    std::vector<std::int64_t> all;
    for (std::int64_t step = 1; step <= kSteps; ++step) all.push_back(step);
    EXPECT_TRUE(told == all) << told.size() << " of " << kSteps << " steps";
}

}  // namespace
}  // namespace atl::dispatch
