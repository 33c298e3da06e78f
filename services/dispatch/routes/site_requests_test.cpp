#include "services/dispatch/routes/site_requests.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace atl::dispatch {
namespace {

TEST(SiteRequestsTest, ACallerAndAFacilityHaveAFewPlacesEachThatAreGivenBack) {
    SiteRequests requests;
    auto first = requests.take_place("bob", "leonardo").value();
    std::vector<SiteRequests::Place> taken;
    const auto fill = [&](const std::string& caller) {
        for (;;) {
            auto place = requests.take_place(caller, "leonardo");
            if (!place.ok()) return place.error();
            taken.push_back(std::move(place).value());
        }
    };
    const Error of_bob = fill("bob");
    EXPECT_EQ(of_bob.code, ErrorCode::kResourceExhausted);
    EXPECT_NE(of_bob.message.find("of bob"), std::string::npos) << of_bob.message;
    EXPECT_EQ(taken.size(), static_cast<std::size_t>(SiteRequests::kOfCallerMax) - 1);
    EXPECT_FALSE(requests.take_place("bob", "vega").ok());
    (void)fill("eve");
    EXPECT_TRUE(requests.take_place("ada", "leonardo").ok()) << "two callers do not keep a third one out";
    (void)fill("ada");
    const Error full = fill("mallory");
    EXPECT_NE(full.message.find("\"leonardo\""), std::string::npos) << full.message;
    first.reset();
    EXPECT_TRUE(requests.take_place("mallory", "leonardo").ok()) << "the place that was refused is given back, too";
    EXPECT_TRUE(requests.take_place("bob", "vega").ok());
}

TEST(SiteRequestsTest, ACallerHasAFewJobsExaminedAtATime) {
    SiteRequests requests;
    std::vector<SiteRequests::Place> taken;
    for (int i = 0; i < SiteRequests::kOfCallerMax; ++i) taken.push_back(requests.take_examination("bob").value());
    EXPECT_EQ(requests.take_examination("bob").error().code, ErrorCode::kResourceExhausted);
    EXPECT_TRUE(requests.take_examination("ada").ok());
    EXPECT_TRUE(requests.take_place_of("bob").ok()) << "questions to sites have places of their own";
    taken.pop_back();
    EXPECT_TRUE(requests.take_examination("bob").ok());
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
