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

}  // namespace
}  // namespace atl::comm
