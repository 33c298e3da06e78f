#include <gtest/gtest.h>

#include <array>

#include "trainer/comm/comm.h"

namespace atl::comm {
namespace {

TEST(SelfCommTest, GatheringAndExchangingOneRankCopies) {
    const auto self = make_self();
    const std::array<float, 3> from{1, 2, 3};
    std::array<float, 3> to{};
    self->all_gather(std::as_bytes(std::span(from)), std::as_writable_bytes(std::span(to)));
    EXPECT_EQ(to, from);
    to = {};
    self->wait(self->start_all_to_all(std::as_bytes(std::span(from)), std::as_writable_bytes(std::span(to))));
    EXPECT_EQ(to, from);
}

TEST(SelfCommTest, AgreementIsItsOwnStatus) {
    const auto self = make_self();
    EXPECT_TRUE(self->agree({}).ok());
    EXPECT_EQ(self->agree(invalid_argument("lr", "no")).error().field, "lr");
}

TEST(SelfCommTest, AWaitForTheDeviceLooksUntilItIsDone) {
    const auto self = make_self();
    int looks = 0;
    self->wait_until([&] { return ++looks == 3; }, {});
    EXPECT_EQ(looks, 3);
}

TEST(SelfCommTest, ADeviceThatStandsStillEndsTheRunWithinItsLimitAndIsNamed) {
    const auto self = make_self();
    const auto part = self->split(0, 0);
    self->limit_waits(0.01);
    EXPECT_EXIT(
        part->wait_until([] { return false; }, {.what = "step 7", .unit = "its device", .collective = "computing"}),
        testing::ExitedWithCode(1),
        R"(rank 0 has waited 0 s for step 7 of its device \(computing\); the device stands still)");
}

}  // namespace
}  // namespace atl::comm
