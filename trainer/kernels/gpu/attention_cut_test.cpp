#include "trainer/kernels/gpu/attention_cut.h"

#include <gtest/gtest.h>

namespace atl::kernels::gpu {
namespace {

TEST(AttentionCutTest, AShortSequenceIsOnePart) {
    const AttentionCut cut = cut_attention(300, 8, 300, 6);
    EXPECT_EQ(cut.queries, 300);
    EXPECT_EQ(cut.heads, 8);
    EXPECT_EQ(cut.stride, 320);
    EXPECT_EQ(cut.bytes, 8 * 300 * 320 * 6);
}

TEST(AttentionCutTest, ALongSequenceTakesFewerHeadsAndThenFewerQueriesAtOnce) {
    const AttentionCut of_4096 = cut_attention(4096, 32, 4096, 12), of_65536 = cut_attention(65536, 8, 65536, 12);
    EXPECT_EQ(of_4096.queries, 512);
    EXPECT_EQ(of_4096.heads, 5);
    EXPECT_EQ(of_4096.bytes, AttentionCut::kBytesMax);
    EXPECT_EQ(of_65536.queries, 128);
    EXPECT_EQ(of_65536.heads, 1);
    EXPECT_EQ(of_65536.bytes, AttentionCut::kBytesMax);
    EXPECT_EQ(cut_attention(1 << 20, 8, 1 << 20, 12).bytes, std::int64_t{64} * (1 << 20) * 12) << "64 queries";
}

// A cache is planned for its longest use.
TEST(AttentionCutTest, FewerKeysNeverTakeMoreMemoryAndPartsFitIn) {
    for (const std::int64_t queries : {1, 37, 64, 300, 512, 5000}) {
        for (const std::int64_t heads : {1, 8, 40}) {
            std::int64_t before = 0;
            for (std::int64_t keys = 1; keys < 1'000'000; keys += 1 + keys / 7) {
                const AttentionCut cut = cut_attention(queries, heads, keys, 12);
                EXPECT_GE(cut.bytes, before);
                EXPECT_LE(cut.heads * cut.queries * cut.stride * 12, cut.bytes);
                EXPECT_GE(cut.stride, keys);
                EXPECT_GE(cut.queries, std::min<std::int64_t>(queries, AttentionCut::kQueriesMin));
                before = cut.bytes;
            }
        }
    }
}

}  // namespace
}  // namespace atl::kernels::gpu
