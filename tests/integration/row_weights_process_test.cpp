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

TEST_F(AggregationProcessTest, ControlVariatesAreAveragedIntoTheVersionRoundByRound) {
    const ServiceProcess service("aggregation", aggregation_config({{"part_bytes", 4096}, {"workers", 4}}), root());
    const Json strategy = {{"name", "fedavg"}, {"weighting", "uniform"}, {"control_variate", 0.7}};
    const std::string base = store_model("base", {});
    const auto update = [&](const std::string& facility, float offset, float variate, const std::string& of) {
        return store_update(facility, {.offset = offset, .control_variate = variate, .trained_from = of}, 100);
    };
    close_round({update("karolina", 1, 0.5F, base), update("leonardo", 1.1F, 8, base), update("lumi", 1.2F, 0.7F, base),
                 update("silent", 1, 0, base), update("strange", 1, 0.5F, "another")},
                {{"base", base}, {"quorum", 3}, {"strategy", strategy}});
    const Json first = result()["data"];
    const Json refused = first["updates_refused"];
    ASSERT_EQ(refused.size(), 2U) << first;
    EXPECT_NE(refused[0]["reason"].get<std::string>().find("control_variate.safetensors: is missing"),
              std::string::npos)
        << refused;
    EXPECT_NE(refused[1]["reason"].get<std::string>().find("is of a training of another model"), std::string::npos)
        << refused;
    const std::string version = first["version"];
    close_round({update("karolina2", 2, 0.4F, version), update("leonardo2", 2.1F, 0.5F, version)},
                {{"base", version}, {"round", 2}, {"strategy", strategy}});
    const Json second = result()["data"];
    ASSERT_EQ(second["round"], 2) << second << service.log();

    // The same two steps here.
    const auto step = [&](const fs::path& from, const std::vector<std::string>& facilities, const std::string& digest,
                          const std::string& out) {
        std::vector<aggregate::Input> updates;
        for (const std::string& one : facilities) updates.push_back(aggregate::open_directory(root() / one).value());
        aggregate::RoundBase start{.base = aggregate::open_directory(from).value(), .digest = digest};
        if (fs::exists(from / "control_variate"))
            start.control_variate = aggregate::open_directory(from / "control_variate").value();
        auto aggregator = aggregate::Aggregator::plan(aggregate::parse_strategy(strategy).value(), std::move(updates),
                                                      std::vector<double>(facilities.size(), 1), {}, std::move(start))
                              .value();
        ASSERT_TRUE(aggregate::measure_inputs(aggregator).ok());
        ASSERT_TRUE(aggregate::write_aggregate(aggregator, root() / "base", root() / out).ok());
    };
    step(root() / "base", {"karolina", "leonardo", "lumi"}, base, "step1");
    step(root() / "step1", {"karolina2", "leonardo2"}, version, "step2");
    const fs::path got1 = download(version, "got1"), got2 = download(second["version"], "got2");
    for (const char* file : {"model.safetensors", "control_variate/model.safetensors"}) {
        EXPECT_TRUE(read_file(got1 / file).value() == read_file(root() / "step1" / file).value()) << file;
        EXPECT_TRUE(read_file(got2 / file).value() == read_file(root() / "step2" / file).value()) << file;
    }
    EXPECT_FALSE(fs::exists(got1 / "control_variate.safetensors"));
    http::Client client(transfer_.store);
    const Json contributions = client.get_json("/v1/versions/" + version).value()["contributions"];
    EXPECT_EQ(contributions[0]["control_variate_counted"], 1.0) << contributions;
    EXPECT_EQ(contributions[1]["control_variate_counted"], 0.0) << "far longer than usual";

    const std::string last = second["version"];
    close_round(Json::array({update("karolina3", 3, 0.4F, last)}),
                {{"base", last}, {"round", 3}, {"strategy", strategy}});
    const Json third = result()["data"];
    ASSERT_EQ(third["round"], 3) << third << service.log();
    EXPECT_FALSE(fs::exists(download(third["version"], "got3") / "control_variate")) << "it would be one site's own";
    const Json alone = client.get_json("/v1/versions/" + third["version"].get<std::string>()).value()["contributions"];
    EXPECT_EQ(alone[0]["control_variate_counted"], 0.0) << alone;
    EXPECT_GT(alone[0]["control_variate_norm"].get<double>(), 0) << alone;
}

}  // namespace
}  // namespace atl
