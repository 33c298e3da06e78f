#include "trainer/parallel/two_ended_buffer.h"

#include <gtest/gtest.h>

namespace atl::parallel {
namespace {

using End = TwoEndedBuffer::End;

TEST(TwoEndedBufferTest, NeighboursLieApartInTheRoomOfTheLargestTwo) {
    const std::vector<std::int64_t> elements = {1000, 100, 130, 990};
    tensor::Arena measured = tensor::Arena::measuring();
    TwoEndedBuffer::lay_out(measured, tensor::Category::kGather, tensor::DType::kBF16, elements);
    EXPECT_EQ(measured.peak_bytes(), 2 * (1024 + 192));
    std::vector<std::byte> memory(static_cast<std::size_t>(measured.peak_bytes()) + tensor::kAlignmentBytes);
    void* data = memory.data();
    std::size_t room = memory.size();
    std::align(tensor::kAlignmentBytes, room - tensor::kAlignmentBytes, data, room);
    tensor::Arena arena = tensor::Arena::borrowing(static_cast<std::byte*>(data), measured.peak_bytes());
    const auto buffer = TwoEndedBuffer::lay_out(arena, tensor::Category::kGather, tensor::DType::kBF16, elements);
    for (std::size_t block = 0; block + 1 < elements.size(); ++block) {
        for (const std::size_t front : {block, block + 1}) {
            const std::size_t back = 2 * block + 1 - front;
            EXPECT_EQ(buffer.at(End::kFront, front).element_count(), elements[front]);
            EXPECT_LE(buffer.at(End::kFront, front).at(elements[front]), buffer.at(End::kBack, back).at(0));
            EXPECT_LE(buffer.at(End::kBack, back).at(elements[back]), memory.data() + memory.size());
        }
        EXPECT_TRUE(buffer.holds_both(block, block + 1));
    }
    EXPECT_FALSE(buffer.holds_both(0, 3));
}

TEST(TwoEndedBufferTest, WhatNoBlockTakesIsNotAllocated) {
    tensor::Arena measured = tensor::Arena::measuring();
    const auto buffer = TwoEndedBuffer::lay_out(measured, tensor::Category::kGather, tensor::DType::kF32, {0, 0, 0});
    EXPECT_EQ(measured.peak_bytes(), 0);
    EXPECT_TRUE(buffer.at(End::kBack, 1).empty());
}

}  // namespace
}  // namespace atl::parallel
