#include <gtest/gtest.h>

#include <algorithm>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/base/id.h"
#include "shared/events/events.h"
#include "shared/kafka/kafka.h"

namespace atl::dispatch {
namespace {

using json::Json;

// Whoever can write to Kafka sends them while a round waits for its aggregation.
TEST_F(DispatchServiceTest, ForgedAnswersOfTheAggregationChangeNothingAndTheGenuineOneCounts) {
    aggregation_->set_losing(1);
    const std::string job = submit(job_request(2));
    ASSERT_TRUE(eventually([&] { return aggregation_->closed_rounds().size() == 1; }));
    const std::string absent(64, '1'), foreign(64, '2'), of_another_round(64, '3'), of_another_base(64, '4');
    const auto add_global = [&](const std::string& digest, const std::string& of_job, int round) {
        catalog_->add_global("fortunes", {{"digest", digest},
                                          {"job", of_job},
                                          {"round", round},
                                          {"parents", {std::string(64, '0')}},
                                          {"contributions", Json::array()}});
    };
    add_global(foreign, "another", 1);
    add_global(of_another_round, job, 2);
    add_global(of_another_base, job, 1);
    const std::string no_task = R"([{"task": "none", "reason": "NaN"}])";
    const std::vector<std::pair<Json, std::string>> forged = {
        {{{"job", job}, {"round", 1}, {"version", absent}}, "data.version: the store has no version"},
        {{{"job", job}, {"round", 1}, {"version", foreign}}, "data.version: the store has no version"},
        {{{"job", job}, {"round", 1}, {"version", of_another_round}}, "data.version: the store has no version"},
        {{{"job", job}, {"round", 2}, {"version", of_another_round}}, "data.round: round 2"},
        {{{"job", job}, {"round", 1}, {"version", of_another_base}}, "data.version: the version was not made from"},
        {{{"job", "none"}, {"round", 1}, {"version", foreign}}, "data.job: there is no job none"},
        {{{"job", job}, {"round", 2}, {"error", "forged"}}, "data.round: round 2"},
        {{{"job", job}, {"round", 1}, {"error", "forged"}, {"updates_refused", Json::parse(no_task)}},
         "data.updates_refused: task none"}};
    auto producer = kafka::Producer::create(stack().kafka(), "somebody").value();
    for (const auto& [data, why] : forged) {
        events::Event event;
        event.id = new_id();
        event.type = data.contains("error") ? "atoll.aggregation.failed.v1" : "atoll.aggregation.completed.v1";
        event.source = "/aggregation";
        event.data = data;
        ASSERT_TRUE(
            producer.send({{.topic = prefix_ + "atoll.aggregations", .key = job, .value = to_json(event).dump()}})
                .ok());
    }
    const auto letters = [&] { return get("/v1/dead-letters").at("items"); };
    ASSERT_TRUE(eventually([&] { return letters().size() == forged.size(); })) << letters().dump(2);
    for (const auto& [data, why] : forged) {
        const Json all = letters();
        EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                                [&](const Json& letter) {
                                    return letter.at("error").get<std::string>().starts_with(why) &&
                                           Json::parse(letter.at("value").get<std::string>()).at("data") == data;
                                }))
            << why << all.dump(2);
    }
    EXPECT_EQ(state_of(job), "running");
    EXPECT_EQ(get("/v1/jobs/" + job + "/rounds").at("items")[1].at("state"), "aggregating");

    // The genuine one waits for a store in trouble, and counts.
    catalog_->set_refusal(500);
    const std::int64_t before = catalog_->requests();
    auto connection = connect();
    ASSERT_TRUE(connection.query("UPDATE rounds SET ask_again_at = now() WHERE state = 'aggregating'").ok());
    EXPECT_TRUE(eventually([&] { return catalog_->requests() >= before + 3; }));
    EXPECT_EQ(get("/v1/jobs/" + job + "/rounds").at("items")[1].at("state"), "aggregating");
    catalog_->set_refusal(0);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    EXPECT_EQ(letters().size(), forged.size());
}

}  // namespace
}  // namespace atl::dispatch
