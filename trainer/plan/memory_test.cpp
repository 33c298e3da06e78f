#include "trainer/plan/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::plan {
namespace {

using run_settings::ActivationCheckpointing;
using run_settings::Offload;
using run_settings::Sharding;

TEST(MemoryPlanTest, CountsWhatTheArenaWasAskedFor) {
    auto arena = tensor::Arena::measuring();
    arena.allocate(tensor::Category::kWeights, tensor::DType::kF32, {1000});
    {
        const tensor::Arena::Scope scope(arena);
        arena.allocate(tensor::Category::kWorkspace, tensor::DType::kF32, {500});
    }
    arena.allocate(tensor::Category::kActivations, tensor::DType::kF32, {100});
    const MemoryPlan plan = read_plan(arena, tensor::Arena::measuring(), 7);
    EXPECT_GE(plan.categories[static_cast<std::size_t>(tensor::Category::kWeights)], 4000);
    EXPECT_GE(plan.device_bytes, 6000);
    EXPECT_LT(plan.device_bytes, 6400);
    EXPECT_EQ(plan.total_bytes(), plan.device_bytes + 7);
}

TEST(MemoryPlanTest, WhatADeviceOfItsOwnMemoryTakesIsNotTheHosts) {
    MemoryPlan plan;
    plan.device_bytes = 1;
    plan.pinned_bytes = 2;
    plan.backend_bytes = 4;
    plan.program_bytes = 8;
    plan.staging_bytes = 16;
    EXPECT_EQ(plan.total_bytes(), 31);
    EXPECT_EQ(plan.bytes(true).host, 27);
    EXPECT_EQ(plan.bytes(true).device, 0);
    EXPECT_EQ(plan.bytes(false).host, 26);
    EXPECT_EQ(plan.bytes(false).device, 1) << "the backend has taken its own";
}

TEST(SmallerSettingsTest, RecomputationComesFirstAndTheRowsOfAStepStay) {
    const auto all = smaller_settings({Sharding::kNone, 4, 2, ActivationCheckpointing::kNone}, 2, true);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.front(), (Settings{Sharding::kNone, 4, 2, ActivationCheckpointing::kFeedForward}));
    EXPECT_EQ(all[1], (Settings{Sharding::kNone, 4, 2, ActivationCheckpointing::kSelective}));
    EXPECT_EQ(all[3], (Settings{Sharding::kNone, 4, 2, ActivationCheckpointing::kFull}));
    EXPECT_EQ(all[all.size() / 2 - 1], (Settings{Sharding::kFullShard, 1, 8, ActivationCheckpointing::kFull}));
    EXPECT_EQ(all.back(), (Settings{Sharding::kFullShard, 1, 8, ActivationCheckpointing::kFull, 0, Offload::kNvme}))
        << "a disk comes last";
    for (const Settings& settings : all) EXPECT_EQ(settings.batch_size * settings.grad_accum, 8);
}

TEST(SmallerSettingsTest, ARunThatRecomputesSomeLayersIsToldToRecomputeAll) {
    const Settings some{Sharding::kNone, 1, 1, ActivationCheckpointing::kFull, 3};
    EXPECT_NE(to_flags(some).find(" --checkpoint-layers 3"), std::string::npos);
    const auto all = smaller_settings(some, 1, true);
    EXPECT_NE(std::ranges::find(all, Settings{Sharding::kNone, 1, 1, ActivationCheckpointing::kFull}), all.end());
}

TEST(SmallerSettingsTest, SavingAtOnceComesBeforeAllElse) {
    Settings settings{Sharding::kNone, 4, 2, ActivationCheckpointing::kNone};
    settings.save_async = run_settings::OnOff::kOn;
    const auto all = smaller_settings(settings, 2, true);
    settings.save_async = run_settings::OnOff::kOff;
    EXPECT_EQ(all.front(), settings);
}

TEST(SmallerSettingsTest, OneRankHasNothingToShard) {
    for (const Settings& settings : smaller_settings({Sharding::kNone, 2, 1, ActivationCheckpointing::kNone}, 1, true))
        EXPECT_EQ(settings.sharding, Sharding::kNone);
}

TEST(SmallerSettingsTest, WhatADeviceHasNoRoomForGoesToTheHostBeforeADisk) {
    const auto all = smaller_settings({Sharding::kNone, 1, 1, ActivationCheckpointing::kFull}, 1, false);
    std::vector<std::string> offloads;
    for (const Settings& settings : all) {
        const std::string flags = to_flags(settings),
                          offload = flags.substr(std::min(flags.find(" --off"), flags.size()));
        if (offloads.empty() || offloads.back() != offload) offloads.push_back(offload);
    }
    EXPECT_EQ(offloads,
              (std::vector<std::string>{"", " --offload-optimizer cpu", " --offload-params cpu --offload-optimizer cpu",
                                        " --offload-params cpu --offload-optimizer nvme --offload-dir DIR"}));
}

TEST(NearestTest, IsTheFirstThatFits) {
    const Settings settings{Sharding::kNone, 8, 1, ActivationCheckpointing::kFull};
    const auto nearest = [&](std::int64_t limit) {
        return nearest_that_fits(settings, 1, true,
                                 [&](const Settings& candidate) { return candidate.batch_size * 100 <= limit; });
    };
    EXPECT_EQ(nearest(250)->batch_size, 2);
    EXPECT_FALSE(nearest(50).has_value());
}

}  // namespace
}  // namespace atl::plan
