#include "trainer/kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace atl::kernels::cpu {
namespace {

TEST(ThreadPoolTest, EveryIndexRunsOnceInEachOfManyLoops) {
    for (const int threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        EXPECT_EQ(pool.threads(), threads);
        for (std::int64_t count = 0; count < 400; ++count) {
            std::vector<int> runs(static_cast<std::size_t>(count));
            pool.parallel_for(count, [&](std::int64_t index, int) { ++runs[static_cast<std::size_t>(index)]; });
            for (const int run : runs) ASSERT_EQ(run, 1) << "of " << count << " on " << threads << " threads";
        }
    }
}

TEST(ThreadPoolTest, NoTwoTilesShareAThreadNumberAtOnce) {
    ThreadPool pool(4);
    std::vector<std::atomic<int>> inside(4);
    std::atomic<int> clashes{0};
    for (int loop = 0; loop < 200; ++loop) {
        pool.parallel_for(64, [&](std::int64_t, int thread) {
            if (inside[static_cast<std::size_t>(thread)].fetch_add(1) != 0) ++clashes;
            inside[static_cast<std::size_t>(thread)].fetch_sub(1);
        });
    }
    EXPECT_EQ(clashes, 0);
}

}  // namespace
}  // namespace atl::kernels::cpu
