#include "shared/training_memory/cards.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::training_memory {
namespace {

TEST(CardsTest, AreFoundByTheirNames) {
    std::set<std::string_view> names;
    for (const Card& card : cards()) {
        const auto found = find_card(std::string(card.name));
        ASSERT_TRUE(found.ok()) << card.name;
        EXPECT_EQ(found->product, card.product);
        EXPECT_GE(card.architecture, 80) << card.name;
        EXPECT_GT(card.memory_bytes, 2 * kDriverBytes) << card.name;
        EXPECT_TRUE(names.insert(card.name).second) << card.name;
    }
}

// 81,559 MiB of an H100 by nvidia-smi, of which CUDA offers less; 80 GB of its data sheet are 80 GiB.
TEST(CardsTest, OfferLessThanTheirDataSheetsSay) {
    EXPECT_LT(find_card("h100")->memory_bytes, std::int64_t{81'559} << 20);
    EXPECT_LT(find_card("a100-40")->memory_bytes, std::int64_t{42'298'834'944}) << "by CUDA's deviceQuery of one";
    EXPECT_GT(find_card("a100-40")->memory_bytes, std::int64_t{42'200'000'000});
    EXPECT_LT(find_card("l40s")->memory_bytes, std::int64_t{48} << 30);
}

TEST(CardsTest, AnotherNameIsToldTheKnownOnes) {
    const auto unknown = find_card("h1000");
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(unknown.error().message.find("'h1000' is not known"), std::string::npos) << unknown.error().message;
    EXPECT_NE(unknown.error().message.find("h100, "), std::string::npos);
    EXPECT_NE(unknown.error().message.find("l40s"), std::string::npos);
}

TEST(CardsTest, OldOnesAreRefusedWithTheReason) {
    for (const char* name : {"v100", "v100-32"}) {
        const auto old = find_card(name);
        ASSERT_FALSE(old.ok());
        EXPECT_NE(old.error().message.find("sm_70, which CUDA 13 no longer compiles for"), std::string::npos)
            << old.error().message;
    }
    EXPECT_NE(find_card("t4").error().message.find("sm_75"), std::string::npos);
}

}  // namespace
}  // namespace atl::training_memory
