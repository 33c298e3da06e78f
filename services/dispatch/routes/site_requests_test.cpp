#include "services/dispatch/routes/site_requests.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace atl::dispatch {
namespace {

TEST(SiteRequestsTest, ACallerAndAFacilityHaveAFewPlacesEachThatAreGivenBack) {
    SiteRequests requests;
    auto first = requests.take_place("bob", "leonardo").value();
    const auto second = requests.take_place("bob", "karolina").value();
    const auto third = requests.take_place("bob", "vega");
    ASSERT_FALSE(third.ok());
    EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(third.error().message.find("of bob"), std::string::npos) << third.error().message;
    const auto one = requests.take_place("eve", "leonardo");
    const auto two = requests.take_place("eve", "leonardo");
    const auto owner = requests.take_place("ada", "leonardo");
    EXPECT_TRUE(owner.ok()) << "two callers do not keep a third one out";
    const auto full = requests.take_place("ada", "leonardo");
    ASSERT_FALSE(full.ok());
    EXPECT_NE(full.error().message.find("\"leonardo\""), std::string::npos) << full.error().message;
    first.reset();
    EXPECT_TRUE(requests.take_place("ada", "leonardo").ok()) << "the place that was refused before is given back, too";
    EXPECT_TRUE(requests.take_place("bob", "vega").ok());
}

TEST(SiteRequestsTest, WhatWaitsForAThreadWhenItIsStoppedIsDropped) {
    SiteRequests requests;
    std::promise<void> begun;
    std::promise<void> go_on;
    std::atomic<bool> has_ended = false;
    ASSERT_TRUE(requests.run([&] {
        begun.set_value();
        go_on.get_future().wait();
        has_ended = true;
    }));
    begun.get_future().wait();
    go_on.set_value();
    requests.stop();
    EXPECT_TRUE(has_ended);
    EXPECT_FALSE(requests.run([] {}));
}

}  // namespace
}  // namespace atl::dispatch
