#include "trainer/parallel/pairwise_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trainer/model/config.h"
#include "trainer/parallel/exact_sum_of_squares.h"

namespace atl::parallel {
namespace {

// One unit of one element.
model::Model model_of_one() {
    model::Model model;
    model::Parameter parameter;
    parameter.shape = {1};
    model.units.emplace_back().add(parameter);
    return model;
}

// Large numbers that cancel, and small ones between.
float awkward(std::int64_t row) {
    if (row % 2 == 1) return static_cast<float>(row) * 0.37F;
    return row % 4 == 0 ? 1e8F : -1e8F;
}

TEST(RowTreeTest, AddsAnyNumberOfRowsByTheTreeOverThem) {
    const auto backend = kernels::make_cpu_backend(1);
    const model::Model model = model_of_one();
    for (std::int64_t rows = 1; rows <= 20; ++rows) {
        Arena measured = Arena::measuring();
        const optim::Optimizer optimizer;
        PairwiseSum::lay_out(measured, ParameterStore::lay_out(measured, model, {}, &optimizer, {}), rows);
        Arena arena(std::move((*backend)->allocate(measured.peak_bytes())).value());
        const ParameterStore store = ParameterStore::lay_out(arena, model, {}, &optimizer, {});
        PairwiseSum tree = PairwiseSum::lay_out(arena, store, rows);
        for (int step = 0; step < 2; ++step) {
            std::vector<float> all, sum(1);
            for (std::int64_t row = 0; row < rows; ++row) {
                all.push_back(awkward(row + step));
                const Tensor& gradient = store.gradients(0);  // overwritten by each row, and the sum in the end
                (*backend)->zero(gradient);
                gradient.f32()[0] = all.back();
                tree.add(**backend, 0, gradient, gradient);
            }
            (*backend)->sum_pieces(Tensor(all.data(), tensor::DType::kF32, {rows, 1}),
                                   Tensor(sum.data(), tensor::DType::kF32, {1}));
            EXPECT_EQ(store.gradients(0).f32()[0], sum[0]) << rows << " rows, step " << step;
        }
    }
}

TEST(ExactSquaresTest, DoesNotDependOnTheOrder) {
    std::vector<float> values;
    for (int i = 0; i < 1000; ++i) values.push_back(std::ldexp(1.0F + static_cast<float>(i) * 0x1p-20F, i % 90 - 60));
    ExactSumOfSquares forward;
    forward.add(values);
    const std::vector<float> reversed(values.rbegin(), values.rend());
    ExactSumOfSquares backward;
    backward.add(std::span(reversed).first(300));
    backward.add(std::span(reversed).subspan(300));
    EXPECT_EQ(forward.value(), backward.value());
    long double expected = 0;
    double rounded = 0;
    for (const float value : values) {
        expected += static_cast<long double>(value) * value;
        rounded += static_cast<double>(value) * value;
    }
    EXPECT_NEAR(static_cast<double>(forward.value() / expected), 1, 1e-15);
    EXPECT_NE(forward.value(), rounded);
}

TEST(ExactSquaresTest, KeepsSubnormalsAndTellsInfinity) {
    const float tiny = std::numeric_limits<float>::denorm_min();
    ExactSumOfSquares squares;
    squares.add(std::span(&tiny, 1));
    EXPECT_EQ(squares.value(), static_cast<double>(tiny) * static_cast<double>(tiny));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    squares.add(std::span(&nan, 1));
    EXPECT_TRUE(std::isinf(squares.value()));
}

}  // namespace
}  // namespace atl::parallel
