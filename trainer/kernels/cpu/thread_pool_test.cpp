#include "trainer/kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <vector>

#include "shared/base/testing/sanitizers.h"
#include "trainer/kernels/backend.h"

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

// In a process with room for some threads' stacks, not for so many.
[[noreturn]] void start_too_many() {
    constexpr rlim_t kRoom = rlim_t{64} << 20;
    alarm(60);  // it waited for ever
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kRoom;
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    const auto backend = make_cpu_backend(4000);
    if (!backend.ok()) std::cerr << to_string(backend.error().code) << " " << backend.error().message << std::endl;
    std::_Exit(backend.ok() ? 0 : 1);
}

TEST(ThreadPoolTest, ThreadsThatCannotAllBeStartedAreAnError) {
    ATOLL_SKIP_IF_SANITIZED();
    EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(1), "unavailable .*4000.*--threads");
}

}  // namespace
}  // namespace atl::kernels::cpu
