#include "services/registry/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::registry {
namespace {

using Json = nlohmann::json;

TEST(RegistrySettingsTest, EachWrongKeyIsNamedInFull) {
    EXPECT_EQ(parse_settings(Json::object())->topic_prefix, "");
    EXPECT_EQ(parse_settings({{"topic_prefix", "t."}})->topic_prefix, "t.");
    EXPECT_EQ(parse_settings({{"topic_prefix", 1}}).error().field, "registry.topic_prefix");
    EXPECT_EQ(parse_settings({{"no_such_key", 3}}).error().field, "registry.no_such_key");
}

}  // namespace
}  // namespace atl::registry
