// What travels beside updates, from the store through the aggregation.
#include "tests/integration/aggregation_process_fixture.h"

namespace atl {
namespace {

TEST_F(AggregationProcessTest, RowsAreWeighedByTokenCountsAndWhoseAreWrongIsLeftOut) {
    const ServiceProcess service("aggregation", aggregation_config({{"part_bytes", 4096}, {"workers", 4}}), root());
    const auto update = [&](const std::string& facility, float offset, const std::vector<float>& counts) {
        return store_update(facility, {.offset = offset, .tokens = 50, .token_counts = counts}, 100);
    };
    std::vector<float> many(50, 8), few(50, 0);
    for (std::size_t token = 0; token < 50; token += 3) few[token] = static_cast<float>(token + 1);
    std::vector<float> negative = few;
    negative[7] = -1;
    const std::string base = store_model("base", {.tokens = 50});
    const Json strategy = {{"name", "fedavg"}, {"weighting", "uniform"}, {"row_weights", "tokens"}};
    close_round({update("karolina", 1, many), update("leonardo", 2, few), update("silent", 1.5F, {}),
                 update("short", 1.5F, std::vector<float>(49, 1)), update("wrong", 1.5F, negative)},
                {{"base", base}, {"quorum", 2}, {"strategy", strategy}});
    const Json event = result();
    ASSERT_EQ(event["type"], "atoll.aggregation.completed.v1") << event;
    expect_measured(event["data"]["version"], {"karolina", "leonardo"}, {1, 1}, "base", strategy);
    EXPECT_FALSE(
        fs::exists(root() / ("got-" + event["data"]["version"].get<std::string>()) / "token_counts.safetensors"));
    const Json refused = event["data"]["updates_refused"];
    ASSERT_EQ(refused.size(), 3U) << refused;
    const std::vector<std::pair<std::string, std::string>> reasons = {
        {"short", "has counts of the shape [49]"},
        {"silent", "token_counts.safetensors: is missing"},
        {"wrong", "the count of token 7 is negative"}};
    for (std::size_t i = 0; i < reasons.size(); ++i) {
        EXPECT_EQ(refused[i]["facility"], reasons[i].first);
        EXPECT_EQ(refused[i]["fault"], "site");
        EXPECT_NE(refused[i]["reason"].get<std::string>().find(reasons[i].second), std::string::npos) << refused[i];
    }
}

}  // namespace
}  // namespace atl
