#include <cmath>
#include <numeric>

#include "shared/aggregate/testing/memory_models.h"

namespace atl::aggregate {
namespace {

StrategySpec bounded(double times = 10) {
    StrategySpec spec;
    spec.norm_bound = times;
    return spec;
}

RoundBase base_of(const std::vector<TestTensor>& tensors) {
    return {input_of("base", {tensors})};
}

// What the whole model's measuring gives, cut every `cut` bytes.
std::vector<double> measure_all(const Aggregator& aggregator, std::uint64_t cut) {
    std::vector<double> sums(aggregator.statistics_count());
    Aggregator::Workspace workspace(aggregator);
    for (std::size_t file = 0; file < aggregator.files().size(); ++file)
        for (std::uint64_t at = 0; at < aggregator.files()[file].size; at += cut) {
            const std::uint64_t size = std::min(cut, aggregator.files()[file].size - at);
            EXPECT_TRUE(aggregator.measure(file, at, size, sums, workspace).ok());
        }
    return sums;
}

// Updates of one element, that far from the base.
Aggregator at_distances(const std::vector<float>& distances, const StrategySpec& spec) {
    std::vector<Input> inputs;
    for (const float distance : distances) inputs.push_back(input_of("u", {{f32("w", {1 + distance}), i64("n", {7})}}));
    return Aggregator::plan(spec, std::move(inputs), std::vector<double>(distances.size(), 1.0), {},
                            base_of({f32("w", {1}), i64("n", {7})}))
        .value();
}

Prepared prepared_at(const std::vector<float>& distances, const std::vector<double>& earlier = {}) {
    Aggregator aggregator = at_distances(distances, bounded());
    return aggregator.prepare(measure_all(aggregator, 1000), earlier).value();
}

TEST(NormBoundTest, TheNormIsTheDistanceFromTheBaseWhateverTheTypesBlocksAndCuts) {
    const TestTensor wide{"wide", DType::kF64, {1}, bytes_of(std::vector<double>{4})};
    const TestTensor wide_base{"wide", DType::kF64, {1}, bytes_of(std::vector<double>{1})};
    std::vector<float> many(5001, 0.5F);
    const Input update = input_of("u", {{f16("h", {3, 5}), wide, f32("m", many)}});
    const RoundBase base = base_of({f32("m", std::vector<float>(5001, 0)), f32("h", {1, 1}), wide_base});
    const double square = 4 + 16 + 9 + 5001 * 0.25;  // exact in fp64
    for (const std::size_t block : {8U, 1000U, 1U << 20})
        for (const std::uint64_t cut : {3U, 1000U, 1U << 20}) {
            const auto aggregator = Aggregator::plan(bounded(), {update, update}, {1, 1}, {block}, base);
            ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
            EXPECT_EQ(measure_all(*aggregator, cut), (std::vector<double>{square, square})) << block << " " << cut;
        }
}

TEST(NormBoundTest, TheStateIsNotMeasuredAndWithoutABoundOrABaseNothingIs) {
    StrategySpec spec = bounded();
    spec.server_optimizer = ServerOptimizer{};
    EXPECT_EQ(measure_all(at_distances({3}, spec), 7), std::vector<double>{9});
    EXPECT_EQ(at_distances({3}, {}).statistics_count(), 0U);
    const auto without = Aggregator::plan(bounded(), {input_of("u", {{f32("w", {1})}})}, {1});
    EXPECT_EQ(without->statistics_count(), 0U);
}

TEST(NormBoundTest, AnUpdateBeyondTheBoundIsRefusedWithItsNorm) {
    const Prepared prepared = prepared_at({1, 100, 2, 4});
    EXPECT_EQ(prepared.norms, (std::vector<double>{1, 100, 2, 4}));
    EXPECT_EQ(prepared.bound, 20) << "ten times the lower median";
    EXPECT_EQ(prepared.refused, std::vector<std::size_t>{1});
    EXPECT_TRUE(prepared_at({1, 10, 1, 1}).refused.empty()) << "at the bound";
}

TEST(NormBoundTest, WhereFewerThanThreeTellEarlierRoundsDo) {
    EXPECT_EQ(prepared_at({64}).refused.size(), 0U) << "nothing to compare with";
    EXPECT_EQ(prepared_at({64}, {1, 2}).refused, std::vector<std::size_t>{0});
    EXPECT_EQ(prepared_at({1, 64}, {32, 40, 50}).refused.size(), 0U);
    EXPECT_EQ(prepared_at({1, 64}, {1, 2}).refused, std::vector<std::size_t>{1});
    EXPECT_EQ(prepared_at({32, 32, 64}, {1, 1, 1, 1}).refused.size(), 0U) << "three tell by themselves";
}

TEST(NormBoundTest, WhoIsLeftIsHeldAgainstTheSameBound) {
    const StrategySpec spec = bounded(1);
    Aggregator all = at_distances({1, 2, 3, 4, 5}, spec);
    const Prepared prepared = all.prepare(measure_all(all, 1000)).value();
    EXPECT_EQ(prepared.refused, (std::vector<std::size_t>{3, 4}));
    Aggregator left = at_distances({1, 2, 3}, spec);
    const auto statistics = measure_all(left, 1000);
    EXPECT_EQ(left.prepare(statistics)->refused, std::vector<std::size_t>{2}) << "by a bound of theirs";
    EXPECT_TRUE(left.prepare(statistics, {}, prepared.bound)->refused.empty());
    EXPECT_EQ(left.prepare(statistics, {}, prepared.bound)->bound, 3);
}

TEST(NormBoundTest, OfTwoUpdatesNoneHasTheOtherRefusedByHardlyMoving) {
    EXPECT_TRUE(prepared_at({1e-6F, 64}).refused.empty());
    EXPECT_EQ(prepared_at({1e-6F, 64}).bound, 0) << "no bound";
    EXPECT_TRUE(prepared_at({1e-6F, 64}, {1e-6, 64}).refused.empty());
    EXPECT_TRUE(prepared_at({1e-6F, 64}, {1e-6, 64, 50, 1e-6}).refused.empty());
}

TEST(NormBoundTest, UpdatesThatMovedNothingSayNothingOfWhatIsUsual) {
    EXPECT_TRUE(prepared_at({0, 0, 5}).refused.empty());
    EXPECT_TRUE(prepared_at({0, 0}).refused.empty());
}

TEST(NormBoundTest, NanIsRefusedByNameWhileMeasuring) {
    std::optional<std::size_t> at_fault;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t input) { at_fault = input; };
    const auto aggregator =
        Aggregator::plan(bounded(), {input_of("good", {{f32("w", {1})}}), input_of("bad", {{f32("w", {NAN})}})}, {1, 1},
                         options, base_of({f32("w", {1})}));
    Aggregator::Workspace workspace(*aggregator);
    std::vector<double> sums(2);
    const Status status = aggregator->measure(0, 0, aggregator->files()[0].size, sums, workspace);
    ASSERT_FALSE(status.ok());
    expect_invalid(status.error(), "w", {"of bad"});
    EXPECT_EQ(at_fault, 1U);
}

std::vector<double> shares_of(const std::vector<double>& weights, std::optional<double> max_share = {}) {
    StrategySpec spec;
    spec.max_share = max_share;
    return make_strategy(spec).value()->prepare({.weights = weights})->shares;
}

TEST(MaxShareTest, NoUpdateWeighsMoreThanItsShareAndTheRestIsSharedOutByWeight) {
    EXPECT_EQ(shares_of({0x1p40, 1})[0], 2.0 / 3);
    EXPECT_DOUBLE_EQ(shares_of({0x1p40, 1})[1], 1.0 / 3);
    const auto of_four = shares_of({1000, 3, 2, 1});  // half for the first
    EXPECT_EQ(of_four[0], 0.5);
    EXPECT_DOUBLE_EQ(of_four[1], 0.25);
    EXPECT_DOUBLE_EQ(of_four[3], 1.0 / 12);
    const auto two_at_once =
        shares_of({1000, 500, 1, 1}, 0.4);  // the second is lifted above it by what the first loses
    EXPECT_EQ(two_at_once[0], 0.4);
    EXPECT_EQ(two_at_once[1], 0.4);
    EXPECT_DOUBLE_EQ(two_at_once[2], 0.1);
    const auto shares = shares_of({5, 0x1p50, 3, 0x1p52, 0x1p50, 0});
    EXPECT_DOUBLE_EQ(std::accumulate(shares.begin(), shares.end(), 0.0), 1);
    EXPECT_EQ(shares[5], 0);
}

TEST(MaxShareTest, WhoeverStaysBelowItIsCountedAsEver) {
    EXPECT_EQ(shares_of({1, 1}), (std::vector<double>{0.5, 0.5}));
    EXPECT_EQ(shares_of({1, 2}), (std::vector<double>{1.0 / 3, 2.0 / 3}));
    EXPECT_EQ(shares_of({3, 1}, 1), (std::vector<double>{0.75, 0.25}));
    EXPECT_EQ(shares_of({7}), std::vector<double>{1});
    EXPECT_EQ(shares_of({0, 7}), (std::vector<double>{0, 1})) << "the only one that weighs anything";
    EXPECT_EQ(shares_of({7, 1}, 0.001), (std::vector<double>{0.5, 0.5})) << "not below one of N";
}

}  // namespace
}  // namespace atl::aggregate
