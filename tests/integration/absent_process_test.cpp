// Who takes part and has no update, through the aggregation.
#include "tests/integration/aggregation_process_fixture.h"

namespace atl {
namespace {

TEST_F(AggregationProcessTest, WhoIsAbsentHoldsItsPartOfTheModelBackForTwoRounds) {
    const ServiceProcess service("aggregation", aggregation_config({{"part_bytes", 4096}, {"workers", 4}}), root());
    const Json strategy = {{"name", "fedavg"}, {"absent", "no_change"}};
    const std::string base = store_model("base", {});
    const Json here = store_update("here", {.offset = 1}, 100), away = store_update("away", {.offset = 2}, 300);
    // The version that the round makes.
    const auto close = [&](int round, const Json& updates, const Json& missing) {
        close_round(updates, {{"round", round}, {"base", base}, {"strategy", strategy}, {"missing", missing}});
        const Json event = result();
        EXPECT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
        http::Client client(transfer_.store);
        return client.get_json("/v1/versions/" + event["data"]["version"].get<std::string>()).value();
    };
    EXPECT_FALSE(close(1, Json::array({here, away}), Json::array())["metrics"].contains("absent_share"));
    for (const int round : {2, 3}) {
        const Json version = close(round, Json::array({here}), Json::array({"away"}));
        // Of two updates none makes more than two thirds.
        EXPECT_NEAR(version["metrics"].value("absent_share", 0.0), 2.0 / 3, 1e-12) << version;
        EXPECT_NEAR(version["contributions"].at(0).value("weight", 0.0), 1.0 / 3, 1e-12) << version;
        EXPECT_EQ(version["contributions"].at(0).value("counted", 0.0), 1) << version;
    }
    const Json version = close(4, Json::array({here}), Json::array({"away"}));
    EXPECT_FALSE(version["metrics"].contains("absent_share")) << "by now it weighs nothing";
    EXPECT_EQ(version["contributions"].at(0).value("weight", 0.0), 1);
}

}  // namespace
}  // namespace atl
