#include "shared/aggregate/strategy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/aggregate/strategy_table.h"

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
    EXPECT_EQ(field({{"name", "krum"}}), "strategy.name");
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
    EXPECT_EQ(field({{"name", "fedavg"}, {"outer", {{"optimizer", "yogi"}}}}), "strategy.outer.optimizer");
    EXPECT_EQ(field({{"name", "fedavg"}, {"outer", {{"lr", 0}}}}), "strategy.outer.lr");
}

// Whether what parse_strategy() says of this lies below "strategy." + key.
bool is_refused(const Json& value, const std::string& key) {
    const auto parsed = parse_strategy(value);
    return !parsed.ok() && parsed.error().field == "strategy." + key;
}

TEST(StrategyTableTest, EachSettingHasTheRangeAndTheDefaultThatAreShown) {
    const Json items = describe_strategies()["items"];
    ASSERT_EQ(items.size(), strategy_rows().size());
    for (const Json& shown : items) {
        const Json name = shown["name"];
        const Json defaults = to_json(parse_strategy({{"name", name}}).value());
        for (const auto& [key, schema] : shown["settings"].items()) {
            EXPECT_EQ(schema.contains("default") ? defaults.at(key) : Json(), schema.value("default", Json()))
                << name << key;
            EXPECT_TRUE(parse_strategy({{"name", name}, {key, nullptr}}).ok()) << name << key;
            if (!schema.contains("minimum")) continue;
            const double least = schema["minimum"], most = schema["maximum"];
            EXPECT_TRUE(is_refused({{"name", name}, {key, least - 1}}, key)) << name << key;
            EXPECT_TRUE(is_refused({{"name", name}, {key, most + 1}}, key)) << name << key;
            const Json wide = {{"name", name}, {"drop", 1e9}, {key, most}};
            EXPECT_TRUE(parse_strategy(wide).ok()) << wide;
            EXPECT_EQ(to_json(parse_strategy(wide).value())[key], most) << wide;
            const Json low = {{"name", name}, {"clip", 1}, {key, least}};
            EXPECT_TRUE(parse_strategy(low).ok()) << low;
        }
    }
}

TEST(StrategyTableTest, EachSettingOfTheOuterOptimizerToo) {
    const Json items = describe_strategies()["items"];
    for (const Json& shown : items) {
        if (!shown["settings"].contains("outer")) continue;
        // Adam takes all of them.
        const auto with = [&](Json outer) -> Json {
            if (!outer.contains("optimizer")) outer["optimizer"] = "adam";
            return {{"name", shown["name"]}, {"outer", outer}};
        };
        const Json defaults = to_json(parse_strategy(with(Json::object())).value())["outer"];
        const Json schemas = shown["settings"]["outer"]["properties"];
        EXPECT_EQ(schemas.size(), defaults.size());
        const auto fallback = parse_strategy(with({{"optimizer", nullptr}}));
        EXPECT_EQ(to_json(*fallback)["outer"]["optimizer"], schemas["optimizer"]["default"]);
        for (const Json& name : schemas["optimizer"]["enum"])
            EXPECT_TRUE(parse_strategy(with({{"optimizer", name}})).ok()) << name;
        for (const auto& [key, schema] : schemas.items()) {
            const Json& own = key == "optimizer" ? schemas["optimizer"]["default"] : defaults.at(key);
            EXPECT_EQ(schema.value("default", own), own) << key;
            EXPECT_TRUE(parse_strategy(with({{key, nullptr}})).ok()) << key;
            if (!schema.contains("minimum")) continue;
            const double least = schema["minimum"], most = schema["maximum"];
            for (const double wrong : {least - 1, most + 1})
                EXPECT_TRUE(is_refused(with({{key, wrong}}), "outer." + key)) << key << wrong;
            for (const double right : {least, most})
                EXPECT_EQ(to_json(parse_strategy(with({{key, right}})).value())["outer"][key], right) << key;
        }
    }
}

TEST(StrategyTableTest, ASettingOfAnotherStrategyIsRefused) {
    const Json items = describe_strategies()["items"];
    for (const Json& shown : items)
        for (const Json& other : items)
            for (const auto& [key, schema] : other["settings"].items()) {
                const Json given = schema.contains("minimum") ? schema["maximum"]
                                   : schema.contains("enum")  ? schema["enum"][0]
                                                              : Json::object();
                EXPECT_EQ(is_refused({{"name", shown["name"]}, {"drop", 1e9}, {key, given}}, key),
                          !shown["settings"].contains(key))
                    << shown["name"] << key;
            }
}

TEST(StrategyTableTest, WhatItTakesAndKeepsIsSoOfTheStrategyItself) {
    for (const StrategyRow& row : strategy_rows()) {
        StrategySpec spec = parse_strategy({{"name", row.name}}).value();
        EXPECT_EQ(make_strategy(spec).value()->is_of_adapters(), row.is_of_adapters) << row.name;
        EXPECT_TRUE(make_strategy(spec).value()->state().empty()) << row.name;
        if (!row.takes_outer) continue;
        spec.server_optimizer.emplace();
        for (const OuterRow& outer : outer_rows()) {
            spec.server_optimizer->kind = outer.kind;
            EXPECT_EQ(make_strategy(spec).value()->state().size(), outer.state.size()) << outer.name;
        }
    }
    EXPECT_EQ(parse_strategy(nullptr)->name, strategy_rows()[0].name);
}

}  // namespace
}  // namespace atl::aggregate
