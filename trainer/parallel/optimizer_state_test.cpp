#include "trainer/parallel/optimizer_state.h"

#include <gtest/gtest.h>

#include <numeric>

#include "shared/base/file.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using Part = OptimizerState::Part;

// Three units: one of three chunks with masters, a frozen one, a small one without.
constexpr std::int64_t kLong = (std::int64_t{2} << 18) + 777;

class OptimizerStateTest : public testing::TestWithParam<bool> {
  protected:
    OptimizerStateTest() {
        const OptimizerState::Layout layout{{kLong, 0, 100},      {1, 1, 0}, 2, tensor::DType::kF32,
                                            tensor::DType::kBF16, GetParam()};
        auto measured = tensor::Arena::measuring();
        file_bytes_ = OptimizerState::lay_out(measured, layout).file_bytes();
        measured_bytes_ = measured.peak_bytes();
        auto memory = backend_->allocate(measured_bytes_);
        check(memory.ok(), "no memory");
        arena_ = std::make_unique<tensor::Arena>(std::move(memory).value());
        state_ = OptimizerState::lay_out(*arena_, layout);
        EXPECT_TRUE(state_.open(directory_.path(), 0).ok());
        for (const Part part : {Part::kMasters, Part::kFirstMoment, Part::kSecondMoment}) state_.clear(*backend_, part);
    }

    std::vector<float> masters(std::int64_t at, std::int64_t count) {
        std::vector<float> values(static_cast<std::size_t>(count));
        EXPECT_TRUE(state_.read(*backend_, Part::kMasters, 0, at, std::as_writable_bytes(std::span(values))).ok());
        return values;
    }

    TemporaryDirectory directory_;
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1).value();
    std::int64_t file_bytes_ = 0;
    std::int64_t measured_bytes_ = 0;
    std::unique_ptr<tensor::Arena> arena_;
    OptimizerState state_;
};

TEST_P(OptimizerStateTest, KeepsWhatIsWrittenAcrossChunksAndUpdates) {
    std::vector<float> values(300000);
    std::iota(values.begin(), values.end(), 1.0F);
    ASSERT_TRUE(state_.write(*backend_, Part::kMasters, 0, 200000, std::as_bytes(std::span(values))).ok());
    EXPECT_EQ(masters(199999, 2), (std::vector<float>{0, 1}));
    EXPECT_EQ(masters(262143, 2), (std::vector<float>{62144, 62145})) << "over a chunk's end";
    std::int64_t seen = 0;
    state_.update(*backend_, 0, [&](const OptimizerState::Piece& piece) {
        EXPECT_EQ(piece.begin, seen);
        seen += piece.count;
        EXPECT_EQ(piece[Part::kFirstMoment].dtype(), tensor::DType::kBF16);
        float* const masters = piece[Part::kMasters].f32();
        for (std::int64_t i = 0; i < piece.count; ++i) masters[i] += 1;
        backend_->copy(piece[Part::kFirstMoment], piece[Part::kSecondMoment]);
    });
    EXPECT_EQ(seen, kLong);
    state_.update(*backend_, 2, [&](const OptimizerState::Piece& piece) {
        EXPECT_EQ(piece.count, 100);
        EXPECT_TRUE(piece[Part::kMasters].empty());
        EXPECT_EQ(piece[Part::kSecondMoment].element_count(), 100);
    });
    ASSERT_TRUE(state_.end_update(*backend_).ok());
    EXPECT_EQ(masters(199999, 2), (std::vector<float>{1, 2}));
    EXPECT_EQ(masters(kLong - 1, 1), std::vector<float>{1});
}

TEST_P(OptimizerStateTest, FrozenGroupsHaveNothing) {
    EXPECT_TRUE(state_.has(Part::kMasters, 0));
    for (const Part part : {Part::kMasters, Part::kFirstMoment, Part::kSecondMoment}) EXPECT_FALSE(state_.has(part, 1));
    EXPECT_FALSE(state_.has(Part::kMasters, 2));
    EXPECT_TRUE(state_.has(Part::kSecondMoment, 2));
}

TEST_P(OptimizerStateTest, MemoryHoldsAllOrThreeChunks) {
    if (GetParam()) {
        EXPECT_EQ(measured_bytes_, 3 * (std::int64_t{1} << 21) + 4096);
        EXPECT_GT(file_bytes_, kLong * 8);
    } else {
        EXPECT_GT(measured_bytes_, kLong * 8);
        EXPECT_EQ(file_bytes_, 0);
    }
}

INSTANTIATE_TEST_SUITE_P(InMemoryAndOffloaded, OptimizerStateTest, testing::Bool());

}  // namespace
}  // namespace atl::parallel
