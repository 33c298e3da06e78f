// The engine with threads as its ranks, which the thread sanitizer can look at: what engine_test.cpp shows of
// processes. With the shims of CUDA and NCCL also on GPUs, between which NCCL moves what MPI does elsewhere.

#include <gtest/gtest.h>

#include "trainer/comm/testing/thread_comm.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/kernels/testing/worse.h"
#include "trainer/parallel/mpi_collectives.h"
#include "trainer/parallel/testing/tiny_run.h"
#if defined(ATOLL_GPU_SHIM)
#include "trainer/kernels/gpu/testing/cuda_shim.h"
#include "trainer/kernels/gpu/testing/nccl_shim.h"
#include "trainer/parallel/nccl_collectives.h"
#endif

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

// What moves the tensors between ranks: MPI on CPUs, or on the GPUs of the shims NCCL, which adds in another order.
enum class Library : std::uint8_t { kMpi, kNccl };

#if defined(ATOLL_GPU_SHIM)
Variant on_gpus(Variant variant) {
    variant.open_device = [] {
        comm::call_while_waiting(kernels::gpu::shim::progress);
        return kernels::open_tested_gpu(1);
    };
    return variant;
}
Variant by_nccl(Variant variant) {
    variant = on_gpus(std::move(variant));
    variant.open_library = [](kernels::Backend& backend) {
        return std::make_shared<NcclLibrary>(backend, kernels::gpu::shim::nccl());
    };
    return variant;
}
#else
Variant by_nccl(const Variant&) {
    check(false, "there is no shim of NCCL");
    return {};
}
#endif

class EngineThreadsTest : public testing::TestWithParam<Library> {
  protected:
    static bool is_nccl() { return GetParam() == Library::kNccl; }
    static Variant with_library(const Variant& variant) { return is_nccl() ? by_nccl(variant) : variant; }
};

#if defined(ATOLL_GPU_SHIM)
INSTANTIATE_TEST_SUITE_P(Libraries, EngineThreadsTest, testing::Values(Library::kMpi, Library::kNccl));
#else
INSTANTIATE_TEST_SUITE_P(Libraries, EngineThreadsTest, testing::Values(Library::kMpi));
#endif

void expect_near(const Outcome& outcome, const Outcome& reference, double tolerance) {
    for (std::size_t step = 0; step < reference.losses.size(); ++step)
        EXPECT_NEAR(outcome.losses.at(step), reference.losses[step], tolerance) << "step " << step;
    EXPECT_NEAR(outcome.eval_loss / reference.eval_loss, 1, tolerance);
    ASSERT_EQ(outcome.weights.size(), reference.weights.size());
    double worst = 0;
    for (std::size_t i = 0; i < outcome.weights.size(); ++i)
        worst = kernels::worse(worst, std::abs(static_cast<double>(outcome.weights[i]) - double{reference.weights[i]}));
    EXPECT_LT(worst, tolerance);
}
constexpr double kFp32Tolerance = 2e-5;

// By MPI all are added along one tree; by NCCL the sums over four ranks are others where two groups add them.
TEST_P(EngineThreadsTest, EveryShardingGivesTheSameBitsOnOneMachineAndOnTwo) {
    for (const int ranks : {2, 4}) {
        Variant variant;
        variant.tied = true;
        const Outcome reference = run_on_threads(ranks, with_library(variant));
        for (const Sharding sharding : kShardings) {
            for (const int ranks_on_node : {2, ranks}) {
                SCOPED_TRACE(testing::Message() << ranks << " ranks, sharding " << static_cast<int>(sharding));
                variant.sharding = sharding;
                variant.shard_group = 2;
                variant.activation_checkpointing = ActivationCheckpointing::kSelective;
                const Outcome outcome = run_on_threads(ranks, with_library(variant), ranks_on_node);
                if (is_nccl() && ranks > 2 && is_hybrid(sharding)) {
                    expect_near(outcome, reference, kFp32Tolerance);
                } else {
                    expect_same_bits(outcome, reference);
                }
            }
        }
    }
}

// The ranks' rows are moved and never added by the library.
TEST_P(EngineThreadsTest, WithAFixedTreeOverRowsRanksAndShardingsGiveTheBitsOfOneRank) {
    Variant variant;
    variant.fixed_tree_sequences = 12;
    variant = with_library(variant);
    const auto self = comm::make_self();
    const Outcome reference = run_on(*self, variant);
    for (const int ranks : {1, 2, 3, 4}) {
        if (is_nccl() && ranks % 2 == 1) continue;  // each takes seconds
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

TEST(EngineThreadsBitsTest, WithoutItTheNumberOfRanksChangesBits) {
    const Outcome alone = run_alone(false);
    expect_same_bits(run_on_threads(1, {}), alone);
    for (const int ranks : {2, 4}) {
        const Outcome outcome = run_on_threads(ranks, {});
        EXPECT_NE(outcome.losses, alone.losses);
        EXPECT_NE(outcome.weights, alone.weights);
    }
}

// Each rank has two threads more, which read and write its state's file; a GPU's weights are gathered from the host's
// memory.
TEST_P(EngineThreadsTest, AnOffloadedOptimizerGivesTheSameBitsInEverySharding) {
    for (const Sharding sharding : kShardings) {
        SCOPED_TRACE(static_cast<int>(sharding));
        Variant variant{sharding};
        variant.shard_group = 2;
        variant = with_library(variant);
        const Outcome kept = run_on_threads(4, variant);
        variant.offload_optimizer = run_settings::Offload::kNvme;
        variant.offload_params = run_settings::Offload::kCpu;
        expect_same_bits(run_on_threads(4, variant), kept);
    }
}

#if defined(ATOLL_GPU_SHIM)

TEST(NcclEngineTest, TwoRanksHaveTheBitsOfMpiAndFourNearlyTheSame) {
    for (const int ranks : {2, 4}) {
        for (const Sharding sharding : kShardings) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, sharding " << static_cast<int>(sharding));
            const Variant variant{sharding, ActivationCheckpointing::kNone, 2, true, 2};
            const Outcome mpi = run_on_threads(ranks, on_gpus(variant));
            const Outcome nccl = run_on_threads(ranks, by_nccl(variant));
            if (ranks == 2) {
                expect_same_bits(nccl, mpi);
            } else {
                expect_near(nccl, mpi, kFp32Tolerance);
            }
        }
    }
}

// MPI rounds what is sent alone, NCCL each sum of two as well.
TEST(NcclEngineTest, GradientsThatTravelInBf16AreRoundedAboutAsMuchAsByMpi) {
    for (const Sharding sharding : {Sharding::kNone, Sharding::kFullShard, Sharding::kHybridShard}) {
        SCOPED_TRACE(static_cast<int>(sharding));
        Variant variant{sharding, ActivationCheckpointing::kNone, 1, false, 2};
        const Outcome exact = run_on_threads(4, by_nccl(variant));
        variant.formats.reduced = tensor::DType::kBF16;
        const Outcome mpi = run_on_threads(4, on_gpus(variant)), nccl = run_on_threads(4, by_nccl(variant));
        EXPECT_NE(nccl.weights, mpi.weights);
        EXPECT_NE(nccl.weights, exact.weights);
        EXPECT_LT(l2_distance(nccl.weights, exact.weights), 2 * l2_distance(mpi.weights, exact.weights));
    }
}

// Each thread's device counts what it gives.
TEST(NcclEngineTest, ARunTakesWhatItsPlanSaysAndLessThanByMpi) {
    for (const tensor::DType reduced : {tensor::DType::kF32, tensor::DType::kBF16}) {
        Variant variant{Sharding::kFullShard};
        variant.formats.reduced = reduced;
        comm::run_on_threads(2, [&](comm::Comm& comm) {
            const plan::MemoryPlan mpi = parallel::Run(comm, on_gpus(variant)).plan();
            const std::int64_t before = kernels::gpu::shim::device_bytes();
            parallel::Run run(comm, by_nccl(variant));
            const plan::MemoryPlan nccl = run.plan();
            EXPECT_EQ(kernels::gpu::shim::device_bytes() - before, nccl.device_bytes + nccl.backend_bytes);
            EXPECT_LT(nccl.device_bytes, mpi.device_bytes);
            EXPECT_LT(nccl.pinned_bytes, mpi.pinned_bytes);
            const std::int64_t allocations = kernels::gpu::shim::device_allocations();
            run.run();
            EXPECT_EQ(kernels::gpu::shim::device_allocations(), allocations);
        });
    }
}

#endif

TEST(EngineThreadsBitsTest, FarDevicesOfFourRanksOnTwoMachinesGiveTheSameBits) {
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
TEST(EngineThreadsBitsTest, ExchangesWaitForTheDeviceAsTheyAreToldToAndByTheNameOfTheirBlock) {
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
