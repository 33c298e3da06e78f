#include <cblas.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "trainer/kernels/cpu/sgemm.h"

namespace atl::kernels::cpu {
namespace {

TEST(OpenblasTest, StartsNoThreadsOfItsOwn) {
    EXPECT_EQ(openblas_get_num_threads(), 1);
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
