#include "services/aggregation/testing/aggregation_fixture.h"

namespace atl::aggregation {
namespace {

TEST_F(AggregationTest, ARoundThatCannotBeAggregatedFailsAtOnceAndOneWithoutAddressIsRefused) {
    auto event = closed(1);
    event.data["strategy"]["name"] = "krum";
    ASSERT_TRUE(take(event).ok());
    const auto rows = query("SELECT event FROM outbox");
    ASSERT_EQ(rows.size(), 1);
    EXPECT_EQ(rows.json(0, "event")["type"], "atoll.aggregation.failed.v1");
    EXPECT_EQ(rows.json(0, "event")["data"]["round"], 1);
    EXPECT_NE(rows.json(0, "event")["data"]["error"].get<std::string>().find("strategy.name"), std::string::npos);
    event.data.erase("job");
    EXPECT_EQ(hear(event).error().field, "data.job");
}

TEST_F(AggregationTest, OfAClosedRoundOnlyWhatDispatchSaysIsBelieved) {
    auto forged = closed(1);
    EXPECT_EQ(hear(forged).error().code, ErrorCode::kNotFound) << "dispatch has no such round";
    dispatch_.set_refusal(conflict("round 1 waits for no aggregation", "round"));
    EXPECT_EQ(hear(forged).error().message, "round 1 waits for no aggregation");
    dispatch_.set_refusal(with_cause(conflict("the job is cancelled", "id"), Cause::kJobEnded));
    EXPECT_TRUE(hear(forged).ok()) << "it was closed, and nobody waits any more";
    EXPECT_EQ(query("SELECT 1 FROM aggregations").size(), 0);
    dispatch_.set_refusal({});
    dispatch_.add(closed(1).data);
    forged.data.update({{"base", std::string(64, 'f')}, {"model", "victim"}, {"updates", Json::array()}});
    ASSERT_TRUE(hear(forged).ok());
    const Json known = get("/v1/aggregations/j1/1").value();
    for (const char* member : {"base", "model", "updates"}) EXPECT_EQ(known[member], closed(1).data[member]) << member;
    EXPECT_EQ(query("SELECT 1 FROM outbox").size(), 0);
}

TEST_F(AggregationTest, AClosedRoundWaitsForADispatchInTrouble) {
    dispatch_.add(closed(1).data);
    for (const int status : {500, 401, 403, 404, 409, 429, 503}) {
        dispatch_.set_trouble(status);
        EXPECT_EQ(hear(closed(1)).error().code, ErrorCode::kUnavailable) << status;
    }
    dispatch_.set_trouble(0);
    dispatch_.set("j1/1", closed(2).data);
    EXPECT_EQ(hear(closed(1)).error().code, ErrorCode::kUnavailable) << "it told of another round";
    EXPECT_EQ(query("SELECT 1 FROM aggregations").size(), 0);
    dispatch_.add(closed(1).data);
    EXPECT_TRUE(hear(closed(1)).ok());
    EXPECT_EQ(query("SELECT 1 FROM aggregations").size(), 1);
}

TEST_F(AggregationTest, ARoundThatIsAskedForAgainIsAnsweredAgainOnceItHasAnAnswer) {
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(take(closed(1)).ok());
    EXPECT_EQ(query("SELECT 1 FROM outbox").size(), 0) << "it is still at work";
    ASSERT_TRUE(commit(save_plan, claim(), round::cut_into_parts({{"model.safetensors", 10}}, 10), Json::array()));
    ASSERT_TRUE(commit(save_part, claim(), std::string(64, 'b')));
    ASSERT_TRUE(commit(save_version, claim(), Published{std::string(64, 'e'), {}}));
    ASSERT_TRUE(take(closed(1)).ok());
    ASSERT_TRUE(take(closed(2)).ok());
    ASSERT_TRUE(commit(save_failure, claim(), "a fault", std::vector<round::RefusedUpdate>()));
    ASSERT_TRUE(take(closed(2)).ok());
    const auto rows = query("SELECT event FROM outbox ORDER BY id");
    ASSERT_EQ(rows.size(), 2);
    EXPECT_EQ(rows.json(0, "event")["type"], "atoll.aggregation.completed.v1");
    EXPECT_EQ(rows.json(0, "event")["data"]["version"], std::string(64, 'e'));
    EXPECT_EQ(rows.json(1, "event")["type"], "atoll.aggregation.failed.v1");
    EXPECT_EQ(rows.json(1, "event")["data"]["error"], "a fault");
}

TEST_F(AggregationTest, EventsOfTheLargestRoundFitIntoMessagesWhateverBecomesOfIt) {
    constexpr std::size_t kUpdates = 1000;
    auto event = closed(1);
    Json& updates = event.data["updates"];
    for (std::size_t i = 0; i < kUpdates; ++i) {
        updates[i] = updates[0];
        updates[i]["facility"] = std::string(59, 'f') + std::to_string(1000 + i);
        updates[i]["task"] = std::string(32, 't') + std::to_string(1000 + i);
    }
    ASSERT_TRUE(take(event).ok());
    const Claim planning = claim();
    const round::ClosedRound round = load_round(*pool_->acquire().value(), planning.aggregation).value();
    ASSERT_EQ(round.updates.size(), kUpdates);
    std::vector<round::RefusedUpdate> refused;
    for (const round::Update& update : round.updates) refused.push_back({update, std::string(500, '"'), false});
    ASSERT_TRUE(commit(save_failure, planning, std::string(500, '"'), refused));
    const Status again = take(event);
    ASSERT_TRUE(again.ok()) << describe(again.error());
    const auto told = query("SELECT octet_length(event::text) AS bytes, event FROM outbox");
    ASSERT_EQ(told.size(), 1);
    EXPECT_LT(told.integer(0, "bytes"), 1'000'000) << "librdkafka sends no more";
    EXPECT_EQ(told.json(0, "event")["data"]["updates_refused"].size(), kUpdates);
    EXPECT_GT(told.json(0, "event")["data"]["updates_refused"][0]["reason"].get<std::string>().size(), 50U);
}

}  // namespace
}  // namespace atl::aggregation
