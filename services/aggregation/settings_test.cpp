#include "services/aggregation/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/service/testing/settings_check.h"

namespace atl::aggregation {
namespace {

using Json = nlohmann::json;

const Json kLeast = {{"store_url", "http://127.0.0.1:7400/store"},
                     {"dispatch_url", "http://127.0.0.1:7400/dispatch"},
                     {"token_file", "/t"}};

TEST(AggregationSettingsTest, WhatIsNotGivenHasItsDefault) {
    const Settings settings = parse_settings(kLeast).value();
    EXPECT_EQ(settings.store_url, kLeast["store_url"].get<std::string>());
    EXPECT_EQ(settings.dispatch_url, kLeast["dispatch_url"].get<std::string>());
    EXPECT_EQ(settings.workers, 2);
    EXPECT_EQ(settings.part_bytes, 8 << 20);
    EXPECT_EQ(settings.lease_s, 15);
}

TEST(AggregationSettingsTest, EachWrongKeyIsNamedInFull) {
    service::expect_wrong_keys_are_named(parse_settings, "aggregation", kLeast,
                                         {{"store_url", nullptr},
                                          {"store_url", "127.0.0.1:7400"},
                                          {"dispatch_url", nullptr},
                                          {"dispatch_url", "127.0.0.1:7400"},
                                          {"token_file", nullptr},
                                          {"workers", 0},
                                          {"part_bytes", 1},
                                          {"lease_s", "15"},
                                          {"topic_prefix", 1},
                                          {"no_such_key", 3}});
}

}  // namespace
}  // namespace atl::aggregation
