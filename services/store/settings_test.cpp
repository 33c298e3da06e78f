#include "services/store/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/service/testing/settings_check.h"

namespace atl::store {
namespace {

using Json = nlohmann::json;

TEST(StoreSettingsTest, WhatIsNotGivenHasItsDefault) {
    const Settings settings = parse_settings({{"root", "/r"}}).value();
    EXPECT_EQ(settings.root, "/r");
    EXPECT_EQ(settings.accel_prefix, "");
    EXPECT_EQ(settings.put_concurrency, 8);
    EXPECT_EQ(settings.unused_blob_hours, 24);
    EXPECT_EQ(settings.keep_updates_rounds, 2);
    EXPECT_EQ(settings.scrub_days, 30);
    EXPECT_FALSE(settings.free_bytes_min.has_value());
    EXPECT_EQ(parse_settings({{"root", "/r"}, {"free_bytes_min", 5}})->free_bytes_min, 5U);
    EXPECT_FALSE(settings.operator_unused_bytes_max.has_value());
    EXPECT_EQ(parse_settings({{"root", "/r"}, {"operator_unused_bytes_max", 5}})->operator_unused_bytes_max, 5);
    EXPECT_EQ(settings.operator_manifest_bytes_max, 256 << 20);
    EXPECT_EQ(parse_settings({{"root", "/r"}, {"accel_prefix", "/internal/blobs/"}})->accel_prefix, "/internal/blobs/");
}

TEST(StoreSettingsTest, EachWrongKeyIsNamedInFull) {
    EXPECT_EQ(parse_settings(Json::object()).error().field, "store.root");
    service::expect_wrong_keys_are_named(parse_settings, "store", {{"root", "/r"}},
                                         {{"root", "relative/path"},
                                          {"root", 1},
                                          {"accel_prefix", "/internal"},
                                          {"accel_prefix", "internal/"},
                                          {"put_concurrency", 0},
                                          {"unused_blob_hours", -1},
                                          {"free_bytes_min", -1},
                                          {"operator_unused_bytes_max", -1},
                                          {"operator_manifest_bytes_max", -1},
                                          {"keep_updates_rounds", -1},
                                          {"scrub_days", -1},
                                          {"topic_prefix", 1},
                                          {"no_such_key", 3}});
}

}  // namespace
}  // namespace atl::store
