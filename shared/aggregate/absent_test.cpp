// Who has no update in a round counts as one that changes nothing.
#include <cmath>

#include "shared/aggregate/testing/adapters.h"
#include "shared/aggregate/testing/memory_models.h"
#include "shared/model_config/token_counts.h"

namespace atl::aggregate {
namespace {

const std::vector<float> kBase = {1, -2, 3};
const std::vector<float> kFirst = {2, -2, 4};   // changes 1, 0, 1
const std::vector<float> kSecond = {1, 0, 11};  // 0, 2, 8

std::vector<float> last_floats(const std::string& file, std::size_t count) {
    std::vector<float> values(count);
    std::memcpy(values.data(), file.data() + file.size() - count * sizeof(float), count * sizeof(float));
    return values;
}

Input model(const std::vector<float>& values) {
    return input_of("u", {{f32("w", values)}});
}

RoundBase start_with(const std::vector<double>& absent) {
    RoundBase start{model(kBase)};
    start.absent = absent;
    return start;
}

// Nothing is measured first: every change counts whole.
std::vector<float> made_by(const StrategySpec& spec, const std::vector<double>& weights,
                           const std::vector<double>& absent) {
    const auto aggregator = Aggregator::plan(spec, {model(kFirst), model(kSecond)}, weights, {}, start_with(absent));
    EXPECT_TRUE(aggregator.ok()) << aggregator.error().message;
    return last_floats(whole_file(*aggregator, 0).value(), kBase.size());
}

TEST(AbsentTest, TheMeanIsThatWithTheBaseInTheirPlace) {
    EXPECT_EQ(made_by({}, {1, 1}, {}), (std::vector<float>{1.5, -1, 7.5}));
    EXPECT_EQ(made_by({}, {1, 1}, {2}), (std::vector<float>{1.25, -1.5, 5.25}));
    EXPECT_EQ(made_by({}, {1, 3}, {3, 1}), (std::vector<float>{1.125, -1.25, 6.125}));
    EXPECT_EQ(made_by({}, {1, 1}, {0}), made_by({}, {1, 1}, {})) << "who weighs nothing holds nothing back";
}

TEST(AbsentTest, AServerOptimizerAndATrimmedMeanStepTowardsThatMean) {
    StrategySpec outer;
    outer.server_optimizer = ServerOptimizer{1, 0.5};
    // Half of the mean's change, and half of that again for the momentum.
    EXPECT_EQ(made_by(outer, {1, 1}, {2}), (std::vector<float>{1.375, -1.25, 6.375}));
    StrategySpec trimmed;
    trimmed.name = "trimmed_mean";
    EXPECT_EQ(made_by(trimmed, {1, 1}, {1, 1}), (std::vector<float>{1.25, -1.5, 5.25}));
}

TEST(AbsentTest, NoUpdateTakesMoreThanItsShareOfAll) {
    StrategySpec spec;
    spec.max_share = 0.5;
    // Of four the first would make 7 of 10; it makes the half, and the other three share the rest.
    const std::vector<float> made = made_by(spec, {7, 1}, {1, 1});
    EXPECT_NEAR(made[0], 1.5, 1e-6);
    EXPECT_NEAR(made[1], -2 + 2.0 / 6, 1e-6);
    EXPECT_NEAR(made[2], 3 + 0.5 + 8.0 / 6, 1e-6);
}

TEST(AbsentTest, WhatCountsOfAChangeForItsLengthStaysAsItIs) {
    StrategySpec spec;
    spec.drop = 3;
    Input far = model({100, 100, 100});
    auto aggregator = Aggregator::plan(spec, {model(kFirst), model(kFirst), far}, {1, 1, 1}, {}, start_with({3}));
    Aggregator::Workspace workspace(*aggregator);
    std::vector<ExactSum> sums(aggregator->statistics_count());
    ASSERT_TRUE(aggregator->measure(0, 0, aggregator->files()[0].size, sums, workspace).ok());
    std::vector<double> statistics;
    for (const ExactSum& sum : sums) statistics.push_back(sum.value());
    const Prepared prepared = aggregator->prepare(statistics).value();
    EXPECT_EQ(prepared.shares, std::vector<double>(3, 1.0 / 6));
    EXPECT_EQ(prepared.figures[0].counted, 1);
    EXPECT_EQ(prepared.figures[2].counted, 0);
    const auto made = last_floats(whole_file(*aggregator, 0).value(), kBase.size());
    EXPECT_NEAR(made[0], 1 + 1.0 / 3, 1e-6);
    EXPECT_EQ(made[1], -2);
}

TEST(AbsentTest, RowsThatAreWeighedAreNotHeldBack) {
    StrategySpec spec;
    spec.weighs_rows = true;
    const auto of_rows = [](const std::vector<float>& values) {
        const TestTensor embedding{"model.embed_tokens.weight", DType::kF32, {3, 1}, bytes_of(values)};
        Input input = input_of("u", {{embedding, f32("w", values)}});
        input.token_counts = std::make_shared<MemoryFile>(file_of({f32(model_config::kTokenCounts, {1, 0, 1})}));
        return input;
    };
    RoundBase start{of_rows(kBase)};
    start.absent = {1};
    const auto aggregator = Aggregator::plan(spec, {of_rows(kFirst)}, {1}, {}, std::move(start));
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    EXPECT_EQ(last_floats(whole_file(*aggregator, 0).value(), 6), (std::vector<float>{2, -2, 4, 1.5, -2, 3.5}));
}

TEST(AbsentTest, OfAdaptersTheBasesProductTakesTheirPart) {
    StrategySpec spec;
    spec.name = "product";
    const Adapter base = random_adapter(5, 4, 4, 1), update = random_adapter(5, 4, 4, 2);
    RoundBase start{adapter_input("base", base)};
    start.absent = {3};
    const auto aggregator = Aggregator::plan(spec, {adapter_input("u", update)}, {1}, {}, std::move(start));
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    Dense expected(20);
    add_product(expected, 0.25, update);
    add_product(expected, 0.75, base);
    const Adapter made = adapter_in(whole_file(*aggregator, 0).value(), base);
    EXPECT_LT(norm_between(product_of(made), expected), 1e-5 * norm(expected));
}

TEST(AbsentTest, WideTensorsAreHeldBackToo) {
    const auto wide = [](double value) {
        return input_of("u", {{{"w", DType::kF64, {1}, bytes_of(std::vector<double>{value})}}});
    };
    RoundBase start{wide(1)};
    start.absent = {1};
    const auto aggregator = Aggregator::plan({}, {wide(3)}, {1}, {}, std::move(start));
    const std::string file = whole_file(*aggregator, 0).value();
    double made = 0;
    std::memcpy(&made, file.data() + file.size() - sizeof made, sizeof made);
    EXPECT_EQ(made, 2);
}

TEST(AbsentTest, AWeightThatIsNoneIsRefused) {
    for (const double weight : {-1.0, std::nan(""), HUGE_VAL}) {
        const auto aggregator = Aggregator::plan({}, {model(kFirst)}, {1}, {}, start_with({weight}));
        ASSERT_FALSE(aggregator.ok()) << weight;
        EXPECT_EQ(aggregator.error().field, "absent");
    }
}

}  // namespace
}  // namespace atl::aggregate
