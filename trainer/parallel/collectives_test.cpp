// The contract of Collectives by both libraries that there are, between the GPUs of the shim of CUDA's runtime: MPI's
// over threads, and NCCL's by its shim.

#include "trainer/parallel/collectives.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "trainer/comm/testing/thread_comm.h"
#include "trainer/kernels/gpu/testing/cuda_shim.h"
#include "trainer/kernels/gpu/testing/nccl_shim.h"
#include "trainer/kernels/testing/backends.h"
#include "trainer/parallel/mpi_collectives.h"
#include "trainer/parallel/nccl_collectives.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using kernels::Space;
using kernels::Stream;
using tensor::DType;
namespace shim = kernels::gpu::shim;

enum class Library : std::uint8_t { kMpi, kNccl };
constexpr std::int64_t kPart = 24;  // elements
// Where the numbers of a rank begin.
float first_number(int rank) {
    return 1000 * static_cast<float>(rank + 1);
}
constexpr comm::Awaited kWeights{"the weights", "layers.1"};

// A rank with its GPU and a group of all.
class Rank {
  public:
    Rank(comm::Comm& ranks, Library library, std::uint64_t seed = 1) : comm(ranks) {
        comm::call_while_waiting(shim::progress);
        backend = kernels::open_tested_gpu(seed);
        if (library == Library::kNccl) {
            exchange = std::make_shared<NcclLibrary>(*backend, shim::nccl());
        } else {
            exchange = std::make_shared<MpiLibrary>(*backend);
        }
        wait_by_ranks(*backend, comm, exchange);
        group = exchange->make_group(comm);
    }

    Tensor allocate(DType dtype, std::int64_t count, Space space = Space::kDevice) {
        memory_.push_back(
            backend->allocate(space, std::max<std::int64_t>(1, tensor::size_bytes(dtype, count))).value());
        return count == 0 ? Tensor() : Tensor(memory_.back().data(), dtype, {count});
    }
    // What the library says that it takes.
    Tensor pinned(std::int64_t bytes) { return allocate(DType::kU8, bytes, Space::kPinned); }
    Collectives::ReduceMemory reduce_memory(std::int64_t count, DType travels) {
        const auto need = exchange->reduce_need({comm.size(), count, DType::kF32, travels});
        return {allocate(travels, need.scratch), pinned(need.pinned_bytes)};
    }

    // `count` numbers that tell rank and place.
    std::vector<float> numbers(std::int64_t count) const {
        std::vector<float> values(static_cast<std::size_t>(count));
        std::iota(values.begin(), values.end(), first_number(comm.rank()));
        return values;
    }
    // Where the device computes them: half of it is there, and doubled by what was asked for just now.
    Tensor computed(const std::vector<float>& values) {
        std::vector<float> halves = values;
        for (float& value : halves) value /= 2;
        const Tensor tensor = allocate(DType::kF32, std::ssize(values));
        backend->copy_from_host(halves.data(), tensor);
        backend->scale(tensor, 2);
        return tensor;
    }
    std::vector<float> read(const Tensor& tensor) const {
        std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
        backend->copy_to_host(tensor, values.data());
        return values;
    }

    comm::Comm& comm;
    std::unique_ptr<kernels::Backend> backend;
    std::shared_ptr<const ExchangeLibrary> exchange;

  private:
    std::vector<tensor::Memory> memory_;

  public:
    std::unique_ptr<Collectives> group;
};

class CollectivesTest : public testing::TestWithParam<Library> {
  protected:
    // On two ranks and on four, with streams in several orders.
    template <class Body>
    static void on_ranks(const Body& body) {
        for (const int ranks : {2, 4}) {
            for (const std::uint64_t seed : {1U, 2U, 3U}) {
                SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
                comm::run_on_threads(ranks, [&](comm::Comm& comm) {
                    Rank rank(comm, GetParam(), seed + static_cast<std::uint64_t>(comm.rank()));
                    body(rank);
                });
            }
        }
    }
    // Of all ranks' numbers, one after another.
    static std::vector<float> all_numbers(int ranks) {
        std::vector<float> all;
        for (int rank = 0; rank < ranks; ++rank)
            for (std::int64_t i = 0; i < kPart; ++i) all.push_back(first_number(rank) + static_cast<float>(i));
        return all;
    }
    // Of the sums over ranks of numbers(kPart * ranks) the part of this rank.
    static std::vector<float> sums(const comm::Comm& comm) {
        std::vector<float> sums;
        for (std::int64_t i = comm.rank() * kPart; i < (comm.rank() + 1) * kPart; ++i) {
            float sum = 0;
            for (int rank = 0; rank < comm.size(); ++rank) sum += first_number(rank) + static_cast<float>(i);
            sums.push_back(sum);
        }
        return sums;
    }
};

INSTANTIATE_TEST_SUITE_P(Libraries, CollectivesTest, testing::Values(Library::kMpi, Library::kNccl),
                         [](const auto& of) { return of.param == Library::kMpi ? "mpi" : "nccl"; });

TEST_P(CollectivesTest, AGatherHasWhatWasComputedBeforeItAndComesBeforeWhatIsComputedAfter) {
    on_ranks([](Rank& rank) {
        const Tensor shard = rank.computed(rank.numbers(kPart));
        const Tensor whole = rank.allocate(DType::kF32, kPart * rank.comm.size());
        const Tensor pinned = rank.pinned(rank.exchange->gather_bytes(rank.comm.size(), shard.byte_count(), {}));
        const auto transfer = rank.group->start_all_gather(shard, whole, {}, pinned, kWeights);
        rank.group->progress();
        rank.group->wait(transfer);
        rank.backend->scale(whole, 4);
        std::vector<float> expected = all_numbers(rank.comm.size());
        for (float& value : expected) value *= 4;
        EXPECT_EQ(rank.read(whole), expected);
    });
}

TEST_P(CollectivesTest, WhatIsGatheredMayLieInItsPlaceOrInTheHostsMemory) {
    on_ranks([](Rank& rank) {
        const int ranks = rank.comm.size();
        const Tensor whole = rank.allocate(DType::kF32, kPart * ranks),
                     again = rank.allocate(DType::kF32, kPart * ranks);
        const Tensor there = rank.allocate(DType::kF32, kPart, Space::kPinned);
        const std::vector<float> numbers = rank.numbers(kPart);
        std::ranges::copy(numbers, there.f32());
        const Tensor own = flat_range(whole, rank.comm.rank() * kPart, kPart);
        rank.backend->copy(rank.computed(numbers), own);
        const GatherSpaces from_host{.shard = Space::kPinned};
        const Tensor pinned = rank.pinned(rank.exchange->gather_bytes(ranks, own.byte_count(), {})),
                     other = rank.pinned(rank.exchange->gather_bytes(ranks, own.byte_count(), from_host));
        const auto in_place = rank.group->start_all_gather(own, whole, {}, pinned, kWeights);
        const auto from_there = rank.group->start_all_gather(there, again, from_host, other, kWeights);
        rank.group->wait(in_place);
        rank.group->wait(from_there);
        EXPECT_EQ(rank.read(whole), all_numbers(ranks));
        EXPECT_EQ(rank.read(again), all_numbers(ranks));
    });
}

TEST_P(CollectivesTest, ACopyComesFromPinnedMemory) {
    on_ranks([](Rank& rank) {
        const Tensor there = rank.allocate(DType::kF32, kPart, Space::kPinned);
        const Tensor here = rank.allocate(DType::kF32, kPart);
        std::ranges::copy(rank.numbers(kPart), there.f32());
        rank.group->wait(rank.group->start_copy_in(there, here));
        EXPECT_EQ(rank.read(here), rank.numbers(kPart));
    });
}

TEST_P(CollectivesTest, EachRankGetsItsPartOfAll) {
    on_ranks([](Rank& rank) {
        const int ranks = rank.comm.size();
        const Tensor whole = rank.computed(rank.numbers(kPart * ranks));
        const Tensor parts = rank.allocate(DType::kF32, kPart * ranks);
        const Tensor pinned = rank.pinned(rank.exchange->all_to_all_bytes(ranks, whole.byte_count()));
        rank.group->wait(rank.group->start_all_to_all(whole, parts, pinned, {"the gradients", "layers.1"}));
        std::vector<float> expected = all_numbers(ranks);
        for (float& value : expected) value += static_cast<float>(kPart * rank.comm.rank());
        EXPECT_EQ(rank.read(parts), expected);
    });
}

TEST_P(CollectivesTest, SumsOverRanksMayLieAmongWhatTheyAreOf) {
    on_ranks([](Rank& rank) {
        const std::int64_t count = kPart * rank.comm.size();
        const Tensor one = rank.computed(rank.numbers(count)), other = rank.computed(rank.numbers(count));
        const Tensor apart = rank.allocate(DType::kF32, kPart);
        const Tensor own = flat_range(other, rank.comm.rank() * kPart, kPart);
        const auto first = rank.group->start_reduce_scatter(one, apart, rank.reduce_memory(count, DType::kF32), {});
        const auto second = rank.group->start_reduce_scatter(other, own, rank.reduce_memory(count, DType::kF32), {});
        rank.group->wait(first);
        rank.group->wait(second);
        EXPECT_EQ(rank.read(apart), sums(rank.comm));
        EXPECT_EQ(rank.read(own), sums(rank.comm));
    });
}

// Whole numbers below 256 are in bf16.
TEST_P(CollectivesTest, SumsMayTravelInBf16) {
    on_ranks([](Rank& rank) {
        const std::int64_t count = kPart * rank.comm.size();
        std::vector<float> values(static_cast<std::size_t>(count));
        std::iota(values.begin(), values.end(), static_cast<float>(rank.comm.rank()) - 60);
        const Tensor whole = rank.computed(values);
        const Tensor own = flat_range(whole, rank.comm.rank() * kPart, kPart);
        rank.group->wait(
            rank.group->start_reduce_scatter(whole, own, rank.reduce_memory(count, DType::kBF16), {"the gradients"}));
        const auto ranks = static_cast<float>(rank.comm.size());
        std::vector<float> expected(static_cast<std::size_t>(kPart));
        std::iota(expected.begin(), expected.end(), static_cast<float>(kPart * rank.comm.rank()) - 60);
        for (float& value : expected) value = ranks * value + ranks * (ranks - 1) / 2;
        const std::vector<float> sums = rank.read(own);
        for (std::size_t i = 0; i < sums.size(); ++i)
            EXPECT_NEAR(sums[i], expected[i], std::abs(expected[i]) / 128) << i;
    });
}

TEST_P(CollectivesTest, AFewNumbersAreAddedUpInTheirPlace) {
    on_ranks([](Rank& rank) {
        const std::vector<double> mine = {1.5, static_cast<double>(rank.comm.rank())};
        const Tensor few = rank.allocate(DType::kF64, 2), pinned = rank.allocate(DType::kF64, 2, Space::kPinned);
        rank.backend->copy_from_host(mine.data(), few);
        rank.group->all_reduce(few, pinned);
        std::vector<double> sums(2);
        rank.backend->copy_to_host(few, sums.data());
        const int ranks = rank.comm.size();
        EXPECT_EQ(sums, (std::vector<double>{1.5 * ranks, ranks * (ranks - 1) / 2.0}));
    });
}

TEST(NcclCollectivesTest, TakesScratchOnlyWhereWhatTravelsIsRoundedAndNoPinnedMemory) {
    const auto gpu = kernels::open_tested_gpu(1);
    const NcclLibrary nccl(*gpu, shim::nccl());
    EXPECT_EQ(nccl.gather_bytes(4, 1000, {.shard = Space::kPinned}), 0);
    EXPECT_EQ(nccl.all_to_all_bytes(4, 1000), 0);
    const auto need = [&](int ranks, DType format, DType travels) {
        const auto of = nccl.reduce_need({ranks, 1000, format, travels});
        EXPECT_EQ(of.pinned_bytes, 0);
        return of.scratch;
    };
    EXPECT_EQ(need(4, DType::kF32, DType::kF32), 0);
    EXPECT_EQ(need(4, DType::kBF16, DType::kBF16), 0);
    EXPECT_EQ(need(4, DType::kF32, DType::kBF16), 1000);
    EXPECT_EQ(need(1, DType::kF32, DType::kBF16), 0);
    EXPECT_EQ(shim::nccl().name(), "NCCL 2.28.9");
}

// Its host would wait for ever if it waited for the other rank.
TEST(NcclCollectivesTest, AHostGoesOnBeforeTheOtherRankHasCome) {
    comm::run_on_threads(2, [](comm::Comm& comm) {
        Rank rank(comm, Library::kNccl);
        const Tensor whole = rank.computed(rank.numbers(2 * kPart));
        const Tensor own = flat_range(whole, comm.rank() * kPart, kPart);
        if (comm.rank() == 1) static_cast<void>(comm.agree({}));
        for (int i = 0; i < 3; ++i) {
            rank.group->wait(rank.group->start_reduce_scatter(whole, own, {}, {}));
            rank.group->all_gather(own, whole, {}, {}, {});
        }
        if (comm.rank() == 0) static_cast<void>(comm.agree({}));
        EXPECT_EQ(rank.read(whole)[0], 4 * 3000);
    });
}

// What a death test runs: two ranks, of which the one starts what the other does not.
template <class Body>
void run_two(const Body& body) {
    comm::run_on_threads(2, [&](comm::Comm& comm) {
        Rank rank(comm, Library::kNccl);
        comm.limit_waits(comm.rank() == 0 ? 0.5 : 0);
        body(rank);
    });
}
void gather_and_wait(Rank& rank) {
    const Tensor whole = rank.computed(rank.numbers(2 * kPart));
    const Tensor own = flat_range(whole, rank.comm.rank() * kPart, kPart);
    rank.group->wait(rank.group->start_all_gather(own, whole, {}, {}, kWeights));
    rank.backend->wait_on_host(rank.backend->record(Stream::kCompute), "step 12");
}

TEST(NcclCollectivesDeathTest, ARankThatDoesNotComeEndsTheRunByTheNameOfWhatIsWaitedFor) {
    EXPECT_DEATH(run_two([](Rank& rank) {
                     if (rank.comm.rank() == 0) gather_and_wait(rank);
                 }),
                 "rank 0 has waited 0 s for the weights of layers.1 .all-gather.. More than --collective-timeout");
}

TEST(NcclCollectivesDeathTest, RanksThatAskForDifferentThingsAreToldWhich) {
    EXPECT_DEATH(run_two([](Rank& rank) {
                     if (rank.comm.rank() == 0) return gather_and_wait(rank);
                     const Tensor whole = rank.computed(rank.numbers(2 * kPart));
                     const Tensor own = flat_range(whole, kPart, kPart);
                     rank.group->wait(rank.group->start_reduce_scatter(whole, own, {}, {"the gradients", "layers.1"}));
                     rank.backend->synchronize();
                 }),
                 "NCCL 2.28.9 failed while rank . of 2 waited for the .* of layers.1 .* call 1 is .* and ");
}

TEST(NcclCollectivesDeathTest, AFailureOfTheNetworkEndsTheRunWhileTheHostWaitsForTheDevice) {
    EXPECT_DEATH(run_two([](Rank& rank) {
                     if (rank.comm.rank() == 1) return;
                     const Tensor whole = rank.computed(rank.numbers(2 * kPart));
                     const Tensor own = flat_range(whole, 0, kPart);
                     rank.group->wait(rank.group->start_all_gather(own, whole, {}, {}, kWeights));
                     shim::fail_next_nccl(comm::NcclResult::kRemoteError);
                     rank.backend->wait_on_host(rank.backend->record(Stream::kCompute), "step 12");
                 }),
                 "NCCL 2.28.9 failed while rank 0 of 2 waited for .*: remote process exited");
}

TEST(NcclCollectivesDeathTest, RanksOnOneGpuAreRefused) {
    EXPECT_DEATH(comm::run_on_threads(2,
                                      [](comm::Comm& comm) {
                                          shim::set_card("0000:3b:00.0");
                                          const Rank rank(comm, Library::kNccl);
                                      }),
                 "failed while rank . of 2 waited for the other ranks .start of NCCL.: .*Duplicate GPU");
}

TEST(NcclTest, AFunctionThatIsMissingAndAnOldVersionAreNamed) {
    const auto without = [](std::string_view absent) {
        return comm::load_nccl("libnccl.so.2", [absent](const char* name) {
            return name == absent ? nullptr : shim::find_nccl_symbol(name);
        });
    };
    EXPECT_TRUE(without("").ok());
    const auto missing = without("ncclReduceScatter");
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("libnccl.so.2 has no ncclReduceScatter; install NCCL 2.26"),
              std::string::npos)
        << missing.error().message;
    const auto old = comm::load_nccl("libnccl.so.2", [](const char* name) {
        const auto say_old = [](int* version) {
            *version = 21805;
            return comm::NcclResult::kSuccess;
        };
        if (std::string_view(name) != "ncclGetVersion") return shim::find_nccl_symbol(name);
        return reinterpret_cast<void*>(static_cast<comm::NcclResult (*)(int*)>(say_old));
    });
    ASSERT_FALSE(old.ok());
    EXPECT_NE(old.error().message.find("libnccl.so.2 is NCCL 2.18.5"), std::string::npos) << old.error().message;
}

}  // namespace
}  // namespace atl::parallel
