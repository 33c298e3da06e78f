#include "trainer/train/exchange.h"

#include <gtest/gtest.h>

namespace atl::train {
namespace {

using run_settings::DistributedBackend;

constexpr auto kAuto = DistributedBackend::kAuto, kNccl = DistributedBackend::kNccl, kMpi = DistributedBackend::kMpi;
const ExchangeFacts kGood{.ranks = 4, .is_cuda = true};

bool is_nccl(DistributedBackend asked, const ExchangeFacts& facts) {
    return choose_exchange(asked, facts).value().is_nccl;
}

TEST(ExchangeChoiceTest, NcclIsTakenWhereEachRankHasAGpuOfItsOwnUnlessMpiIsAskedFor) {
    EXPECT_TRUE(is_nccl(kAuto, kGood));
    EXPECT_TRUE(is_nccl(kNccl, kGood));
    EXPECT_FALSE(is_nccl(kMpi, kGood));
}

TEST(ExchangeChoiceTest, WithoutAskingForItOneRankAndACpuTakeNoNccl) {
    for (const ExchangeFacts& facts : {ExchangeFacts{.ranks = 1, .is_cuda = true}, ExchangeFacts{.ranks = 4}}) {
        EXPECT_FALSE(is_nccl(kAuto, facts));
        EXPECT_EQ(choose_exchange(kAuto, facts)->why_not, "") << "nobody misses it";
    }
    EXPECT_TRUE(is_nccl(kNccl, {.ranks = 1, .is_cuda = true}));
}

TEST(ExchangeChoiceTest, WhatKeepsNcclFromBeingTakenIsTold) {
    ExchangeFacts absent = kGood, shared = kGood;
    absent.no_nccl = "libnccl.so.2: cannot open shared object file";
    shared.shares_card = true;
    for (const ExchangeFacts& facts : {absent, shared}) {
        const auto choice = choose_exchange(kAuto, facts);
        EXPECT_FALSE(choice->is_nccl);
        EXPECT_NE(choice->why_not, "");
        const auto refused = choose_exchange(kNccl, facts);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().field, "--distributed-backend");
        EXPECT_EQ(refused.error().message, choice->why_not);
        EXPECT_TRUE(choose_exchange(kMpi, facts).ok());
        EXPECT_EQ(choose_exchange(kMpi, facts)->why_not, "");
    }
    EXPECT_FALSE(choose_exchange(kNccl, {.ranks = 4}).ok()) << "of CPUs";
}

}  // namespace
}  // namespace atl::train
