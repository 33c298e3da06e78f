#include "shared/aggregate/strategy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::aggregate {
namespace {

using Json = nlohmann::json;

TEST(StrategyTest, WithoutOneUpdatesAreWeighedByTheirTokens) {
    EXPECT_EQ(to_json(parse_strategy(nullptr).value()),
              (Json{{"name", "fedavg"}, {"weighting", "tokens"}, {"clip", 1.4}, {"drop", 3.0}}));
}

TEST(StrategyTest, DefaultsAreFilledInAndTheRestStays) {
    const Json given = {{"name", "fedavg"}, {"weighting", "uniform"}, {"outer", {{"momentum", 0.6}}}};
    const Json full = to_json(parse_strategy(given).value());
    EXPECT_EQ(full, (Json{{"name", "fedavg"},
                          {"weighting", "uniform"},
                          {"clip", 1.4},
                          {"drop", 3.0},
                          {"outer", {{"optimizer", "nesterov"}, {"lr", 0.7}, {"momentum", 0.6}}}}));
    EXPECT_EQ(to_json(parse_strategy(full).value()), full);
    EXPECT_EQ(to_json(parse_strategy({{"name", "trimmed_mean"}}).value()),
              (Json{{"name", "trimmed_mean"}, {"trim", 0.2}, {"clip", 1.4}, {"drop", 3.0}}));
}

TEST(StrategyTest, TheDefenceIsTurnedOffByNullAndTheMostOfTheMeanFollowsTheNumberOfUpdatesUnlessGiven) {
    const Json off = {
        {"name", "fedavg"}, {"weighting", "tokens"}, {"clip", nullptr}, {"drop", nullptr}, {"max_share", 1.0}};
    const StrategySpec strategy = parse_strategy(off).value();
    EXPECT_FALSE(strategy.clip || strategy.drop);
    EXPECT_EQ(strategy.max_share, 1.0);
    EXPECT_EQ(to_json(strategy), off);
    EXPECT_FALSE(parse_strategy({{"name", "fedavg"}})->max_share);
    EXPECT_FALSE(parse_strategy(nullptr)->max_share);
}

TEST(StrategyTest, WhatIsWrongIsNamed) {
    const auto field = [](const Json& value) { return parse_strategy(value).error().field; };
    EXPECT_EQ(field(Json::object()), "strategy.name");
    EXPECT_EQ(field({{"name", "median"}}), "strategy.name");
    EXPECT_EQ(field({{"name", "fedavg"}, {"weighting", "size"}}), "strategy.weighting");
    EXPECT_EQ(field({{"name", "fedavg"}, {"lr", 1}}), "strategy.lr");
    EXPECT_EQ(field({{"name", "fedavg"}, {"trim", 0.1}}), "strategy.trim");
    EXPECT_EQ(field({{"name", "fedavg"}, {"clip", 0.5}}), "strategy.clip");
    EXPECT_EQ(field({{"name", "fedavg"}, {"drop", "off"}}), "strategy.drop");
    EXPECT_EQ(field({{"name", "fedavg"}, {"clip", 4}}), "strategy.drop") << "below the clip";
    EXPECT_EQ(field({{"name", "fedavg"}, {"max_share", 0}}), "strategy.max_share");
    EXPECT_EQ(field({{"name", "fedavg"}, {"max_share", 1.1}}), "strategy.max_share");
    EXPECT_EQ(field({{"name", "trimmed_mean"}, {"max_share", 1}}), "strategy.max_share");
    EXPECT_EQ(field({{"name", "trimmed_mean"}, {"trim", 0.5}}), "strategy.trim");
    EXPECT_EQ(field({{"name", "trimmed_mean"}, {"weighting", "tokens"}}), "strategy.weighting");
    EXPECT_EQ(field({{"name", "fedavg"}, {"outer", {{"optimizer", "adam"}}}}), "strategy.outer.optimizer");
    EXPECT_EQ(field({{"name", "fedavg"}, {"outer", {{"lr", 0}}}}), "strategy.outer.lr");
}

}  // namespace
}  // namespace atl::aggregate
