#include <gtest/gtest.h>

#include "shared/events/events.h"

namespace atl::events {
namespace {

TEST(EventTest, AnEventIsTheSameAfterARoundTripThroughJson) {
    Event event;
    event.id = "1";
    event.type = "atoll.test.v1";
    event.source = "/test";
    event.subject = "jobs/1";
    event.time = "2026-03-01T12:00:00Z";
    event.data = {{"a", 1}};
    const json::Json value = to_json(event);
    EXPECT_EQ(value["specversion"], "1.0");
    const auto back = from_json(value);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(to_json(*back), value);
}

TEST(EventTest, ExtensionAttributesAreAllowedAndMissingOnesNamed) {
    const json::Json value = {
        {"specversion", "1.0"}, {"id", "1"}, {"type", "t"}, {"source", "/s"}, {"traceparent", "x"}};
    EXPECT_TRUE(from_json(value).ok());
    json::Json incomplete = value;
    incomplete.erase("type");
    EXPECT_EQ(from_json(incomplete).error().field, "type");
    incomplete = value;
    incomplete["specversion"] = "2.0";
    EXPECT_EQ(from_json(incomplete).error().field, "specversion");
    EXPECT_FALSE(from_json(json::Json::array()).ok());
}

}  // namespace
}  // namespace atl::events
