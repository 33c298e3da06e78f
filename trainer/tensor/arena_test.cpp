#include "trainer/tensor/arena.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl::tensor {
namespace {

void lay_out(Arena& arena) {
    arena.allocate(Category::kWeights, DType::kF32, {3, 5});
    for (int block = 0; block < 3; ++block) {
        const Arena::Scope scope(arena);
        arena.allocate(Category::kWorkspace, DType::kBF16, {block + 1, 40});
    }
    arena.allocate(Category::kActivations, DType::kI32, {1});
}

TEST(ArenaTest, AMeasuredLayoutFitsExactly) {
    Arena measured = Arena::measuring();
    lay_out(measured);
    EXPECT_EQ(measured.peak_bytes(), 64 + 256);
    std::vector<std::byte> bytes(static_cast<std::size_t>(measured.peak_bytes()));
    Arena real = Arena::borrowing(bytes.data(), measured.peak_bytes());
    lay_out(real);
    real.allocate(Category::kWorkspace, DType::kF32, {48});  // what the scopes gave back
    EXPECT_EQ(real.peak_bytes(), measured.peak_bytes());
}

TEST(ArenaDeathTest, OneByteTooManyAborts) {
    std::vector<std::byte> bytes(64);
    Arena arena = Arena::borrowing(bytes.data(), 64);
    arena.allocate(Category::kWeights, DType::kF32, {16});
    EXPECT_DEATH(arena.allocate(Category::kWeights, DType::kF32, {1}), "the arena is full");
}

TEST(ArenaTest, PeaksAreCountedByCategory) {
    Arena arena = Arena::measuring();
    lay_out(arena);
    EXPECT_EQ(arena.peak_bytes(Category::kWorkspace), 256);
    EXPECT_EQ(arena.peak_bytes(Category::kWeights), 64);
    EXPECT_EQ(arena.peak_bytes(Category::kMoments), 0);
}

TEST(ArenaDeathTest, ATensorLargerThanAnyMemoryIsNoSmallNumberOfBytes) {
    Arena arena = Arena::measuring();
    EXPECT_DEATH(arena.allocate(Category::kWeights, DType::kF32, {INT64_C(1) << 32, INT64_C(1) << 32}),
                 "more elements than there can be memory for");
}

TEST(TensorTest, RangesPointIntoTheWhole) {
    std::vector<float> values(24);
    const Tensor whole(values.data(), DType::kF32, {2, 3, 4});
    EXPECT_EQ(whole.rows(), 6);
    EXPECT_EQ(whole.row_range(2, 3).f32(), values.data() + 8);
    const Tensor slice = whole.column_range(1, 2);
    EXPECT_EQ(slice.f32(), values.data() + 1);
    EXPECT_EQ(slice.row_stride(), 4);
    EXPECT_FALSE(slice.contiguous());
}

}  // namespace
}  // namespace atl::tensor
