#include "trainer/comm/testing/thread_comm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "trainer/comm/node_groups.h"

namespace atl::comm {
namespace {

std::span<const std::byte> bytes_of(const std::vector<int>& values) {
    return std::as_bytes(std::span(values));
}

TEST(ThreadCommTest, GathersInPlaceWhatLiesBetweenOneAnother) {
    run_on_threads(3, [](Comm& comm) {
        const Parts parts{sizeof(int), sizeof(int), 2, 3 * sizeof(int)};
        std::vector<int> whole(6, -1);
        const auto own = static_cast<std::size_t>(comm.rank());
        whole[own] = comm.rank();
        whole[3 + own] = 10 + comm.rank();
        comm.wait(comm.start_all_gather({}, std::as_writable_bytes(std::span(whole)), parts));
        EXPECT_EQ(whole, (std::vector{0, 1, 2, 10, 11, 12}));
    });
}

TEST(ThreadCommTest, TransfersUnderWayAreWaitedForInAnyOrder) {
    run_on_threads(2, [](Comm& comm) {
        const std::vector<int> mine{comm.rank(), comm.rank()}, first{comm.rank()};
        std::vector<int> whole(2), received(2);
        const Transfer gather = comm.start_all_gather(bytes_of(first), std::as_writable_bytes(std::span(whole)));
        const Transfer exchange = comm.start_all_to_all(bytes_of(mine), std::as_writable_bytes(std::span(received)));
        while (!comm.is_done(exchange)) std::this_thread::yield();
        comm.wait(exchange);
        comm.wait(gather);
        EXPECT_EQ(whole, (std::vector{0, 1}));
        EXPECT_EQ(received, (std::vector{0, 1}));
    });
}

TEST(ThreadCommTest, SumsBroadcastsAndSends) {
    run_on_threads(3, [](Comm& comm) {
        double value = comm.rank() + 1;
        comm.all_reduce(std::span(&value, 1), Reduction::kSum);
        EXPECT_EQ(value, 6);
        int told = comm.rank();
        comm.broadcast(std::as_writable_bytes(std::span(&told, 1)), 2);
        EXPECT_EQ(told, 2);
        int sent = comm.rank();
        comm.send(std::as_writable_bytes(std::span(&sent, 1)), 1, 0);
        EXPECT_EQ(sent, comm.rank() == 0 ? 1 : comm.rank());
    });
}

TEST(ThreadCommTest, NeighboursShareAMachine) {
    std::atomic<int> pairs = 0;
    run_on_threads(
        4,
        [&](Comm& comm) {
            const auto groups = split_by_node(comm);
            ASSERT_TRUE(groups);
            EXPECT_EQ(groups->on_node->rank(), comm.rank() % 2);
            EXPECT_EQ(groups->across_nodes->rank(), comm.rank() / 2);
            pairs += groups->on_node->size() == 2 && groups->across_nodes->size() == 2 ? 1 : 0;
            const auto reversed = comm.split(0, -comm.rank());
            EXPECT_EQ(reversed->rank(), 3 - comm.rank());
        },
        2);
    EXPECT_EQ(pairs, 4);
    run_on_threads(2, [](Comm& comm) { EXPECT_EQ(comm.ranks_on_node(), 2); });
}

#if defined(__SANITIZE_THREAD__)
// What the thread sanitizer is for: each rank writes what the last one to start reads for it.
TEST(ThreadCommTest, WritingWhatIsUnderWayIsARace) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto write_too_early = [](Comm& comm) {
        std::vector<int> shard{comm.rank()}, whole(2);
        const Transfer gather = comm.start_all_gather(bytes_of(shard), std::as_writable_bytes(std::span(whole)));
        shard[0] = 7;
        comm.wait(gather);
    };
    const auto run = [&] {
        run_on_threads(2, write_too_early);
        std::exit(0);  // which the sanitizer's findings change
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace atl::comm
