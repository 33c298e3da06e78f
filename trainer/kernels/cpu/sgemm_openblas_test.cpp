#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <latch>
#include <thread>
#include <vector>

#include "trainer/kernels/cpu/sgemm.h"

namespace atl::kernels::cpu {
namespace {

// Exits with the number of this process's threads after a product that is worth several.
[[noreturn]] void multiply_and_exit_with_thread_count() {
    constexpr std::int64_t kSide = 512;
    const std::vector<float> ones(kSide * kSide, 1.0F);
    std::vector<float> product(kSide * kSide);
    openblas().multiply(kSide, kSide, kSide, {ones.data(), kSide, false}, {ones.data(), kSide, false}, product.data(),
                        kSide, false);
    const std::filesystem::directory_iterator threads("/proc/self/task");
    std::_Exit(static_cast<int>(std::distance(begin(threads), end(threads))));
}

// The threads of a process of its own, which loads the library with that in its environment.
int threads_with(const char* openblas_num_threads) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ::setenv("OPENBLAS_NUM_THREADS", openblas_num_threads, 1);
    int threads = -1;
    const auto keep_exit_code = [&](int status) {
        threads = WEXITSTATUS(status);
        return WIFEXITED(status);
    };
    EXPECT_EXIT(multiply_and_exit_with_thread_count(), keep_exit_code, "");
    ::unsetenv("OPENBLAS_NUM_THREADS");
    return threads;
}

TEST(OpenblasTest, StartsNoThreadsOfItsOwnWhateverTheEnvironmentSays) {
    EXPECT_EQ(threads_with("8"), threads_with("1"));
}

TEST(OpenblasTest, MoreThreadsThanTheLibraryServesGetTheirProducts) {
    constexpr std::int64_t kSide = 64, kDepth = 32768;  // long enough that threads take turns within a product
    constexpr int kThreads = 300;
    const std::vector<float> ones(kSide * kDepth, 1.0F);
    std::vector<std::vector<float>> products(kThreads, std::vector<float>(kSide * kSide));
    testing::internal::CaptureStderr();
    {
        std::latch all(kThreads);
        std::vector<std::jthread> threads;
        for (std::vector<float>& product : products)
            threads.emplace_back([&] {
                all.arrive_and_wait();
                openblas().multiply(kSide, kSide, kDepth, {ones.data(), kDepth, false}, {ones.data(), kSide, false},
                                    product.data(), kSide, false);
            });
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "the library's warning that it has no more buffers";
    for (const std::vector<float>& product : products)
        EXPECT_EQ(std::ranges::count(product, static_cast<float>(kDepth)), kSide * kSide);
}

}  // namespace
}  // namespace atl::kernels::cpu
