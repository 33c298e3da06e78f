// The engine with threads as its ranks, which the thread sanitizer can look at: what engine_test.cpp shows of
// processes.

#include <gtest/gtest.h>

#include "trainer/comm/testing/thread_comm.h"
#include "trainer/parallel/mpi_collectives.h"
#include "trainer/parallel/testing/tiny_run.h"

namespace atl::parallel {
namespace {

// Of rank 0, which has the weights.
Outcome run_on_threads(int ranks, const Variant& variant, int ranks_on_node = 0) {
    Outcome outcome;
    const auto body = [&](comm::Comm& comm) {
        Outcome mine = run_on(comm, variant);
        if (comm.rank() == 0) outcome = std::move(mine);
    };
    comm::run_on_threads(ranks, body, ranks_on_node);
    return outcome;
}

TEST(EngineThreadsTest, EveryShardingGivesTheSameBitsOnOneMachineAndOnTwo) {
    for (const int ranks : {2, 4}) {
        Variant variant;
        variant.tied = true;
        const Outcome reference = run_on_threads(ranks, variant);
        for (const Sharding sharding : kShardings) {
            for (const int ranks_on_node : {2, ranks}) {
                SCOPED_TRACE(testing::Message() << ranks << " ranks, sharding " << static_cast<int>(sharding));
                variant.sharding = sharding;
                variant.shard_group = 2;
                variant.activation_checkpointing = ActivationCheckpointing::kSelective;
                expect_same_bits(run_on_threads(ranks, variant, ranks_on_node), reference);
            }
        }
    }
}

TEST(EngineThreadsTest, WithAFixedTreeOverRowsRanksAndShardingsGiveTheBitsOfOneRank) {
    Variant variant;
    variant.fixed_tree_sequences = 12;
    const auto self = comm::make_self();
    const Outcome reference = run_on(*self, variant);
    for (const int ranks : {1, 2, 3, 4}) {
        for (const Sharding sharding : kShardings) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, sharding " << static_cast<int>(sharding));
            variant.sharding = sharding;
            variant.shard_group = ranks == 4 ? 2 : ranks;
            const Outcome outcome = run_on_threads(ranks, variant);
            EXPECT_EQ(outcome.losses, reference.losses);
            EXPECT_EQ(outcome.weights, reference.weights);
        }
    }
}

TEST(EngineThreadsTest, WithoutItTheNumberOfRanksChangesBits) {
    const Outcome alone = run_alone(false);
    expect_same_bits(run_on_threads(1, {}), alone);
    for (const int ranks : {2, 4}) {
        const Outcome outcome = run_on_threads(ranks, {});
        EXPECT_NE(outcome.losses, alone.losses);
        EXPECT_NE(outcome.weights, alone.weights);
    }
}

// Each rank has two threads more, which read and write its state's file.
TEST(EngineThreadsTest, AnOffloadedOptimizerGivesTheSameBitsInEverySharding) {
    for (const Sharding sharding : kShardings) {
        SCOPED_TRACE(static_cast<int>(sharding));
        Variant variant{sharding};
        variant.shard_group = 2;
        const Outcome kept = run_on_threads(4, variant);
        variant.offload_optimizer = run_settings::Offload::kNvme;
        expect_same_bits(run_on_threads(4, variant), kept);
    }
}

TEST(EngineThreadsTest, FarDevicesOfFourRanksOnTwoMachinesGiveTheSameBits) {
    for (const Sharding sharding : kShardings) {
        SCOPED_TRACE(static_cast<int>(sharding));
        Variant variant{sharding};
        variant.shard_group = 2;
        const Outcome near = run_on_threads(4, variant, 2);
        variant.far = 3;
        expect_same_bits(run_on_threads(4, variant, 2), near);
    }
}

// A device whose events happen once the host waits as it was told to.
class PatientDevice final : public kernels::FarBackend {
  public:
    PatientDevice() : FarBackend(kernels::make_cpu_backend(1).value()) {
        wait_by([this](const std::function<bool()>& is_done, kernels::Event, std::string_view of) {
            waits.emplace_back(of);
            is_waited_for_ = true;
            while (!is_done()) {
            }
            is_waited_for_ = false;
        });
    }
    bool has_happened(kernels::Event event) override { return is_waited_for_ && FarBackend::has_happened(event); }
    std::vector<std::string> waits;

  private:
    bool is_waited_for_ = false;
};

// So a device that gets nowhere is found there, too, by the limit of waits.
TEST(EngineThreadsTest, ExchangesWaitForTheDeviceAsTheyAreToldToAndByTheNameOfTheirBlock) {
    constexpr std::int64_t kShard = 64;
    comm::run_on_threads(2, [&](comm::Comm& comm) {
        PatientDevice device;
        const MpiLibrary library(device);
        const auto group = library.make_group(comm);
        const std::int64_t bytes = library.gather_bytes(2, 4 * kShard, {});
        const tensor::Memory memory = device.allocate(kernels::Space::kDevice, 3 * 4 * kShard).value();
        const tensor::Memory pinned = device.allocate(kernels::Space::kPinned, bytes).value();
        const Tensor shard(memory.data(), tensor::DType::kF32, {kShard});
        const Tensor whole(memory.data() + 4 * kShard, tensor::DType::kF32, {2 * kShard});
        device.zero(shard);
        group->wait(group->start_all_gather(shard, whole, {}, {pinned.data(), tensor::DType::kU8, {bytes}},
                                            {"the weights", "layers.1", {}}));
        EXPECT_EQ(device.waits.front(), "layers.1");
    });
}

}  // namespace
}  // namespace atl::parallel
