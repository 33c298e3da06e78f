#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "shared/aggregate/testing/memory_models.h"

namespace atl::aggregate {
namespace {

StrategySpec trimmed(double trim) {
    StrategySpec spec;
    spec.name = "trimmed_mean";
    spec.trim = trim;
    return spec;
}

Result<std::string> made_of(const std::vector<std::vector<float>>& updates, double trim) {
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < updates.size(); ++i)
        inputs.push_back(input_of("u" + std::to_string(i), {{f32("w", updates[i])}}));
    const std::vector<double> weights(inputs.size(), 1.0);
    ATOLL_TRY(const Aggregator aggregator, Aggregator::plan(trimmed(trim), std::move(inputs), weights));
    return whole_file(aggregator, 0);
}

// What the updates give, beside what was worked out by hand.
void expect_made(const std::vector<std::vector<float>>& updates, double trim, const std::vector<float>& by_hand) {
    EXPECT_EQ(made_of(updates, trim).value(), file_of({f32("w", by_hand)})) << "trim " << trim;
}

TEST(TrimmedMeanTest, TheSmallestAndTheLargestOfEachElementAreLeftOut) {
    // By column, in order: 1 2 3 4 1000; -9 0 0.5 1 2; 5 5 5 5 5.
    const std::vector<std::vector<float>> updates = {{2, 0.5F, 5}, {1000, 0, 5}, {1, -9, 5}, {4, 1, 5}, {3, 2, 5}};
    expect_made(updates, 0.2, {3, 0.5F, 5});          // (2 + 3 + 4) / 3, (0 + 0.5 + 1) / 3
    expect_made(updates, 0.4, {3, 0.5F, 5});          // the medians
    expect_made(updates, 0.1, {3, 0.5F, 5});          // half an update on each side is one
    expect_made(updates, 0, {202, -1.1F, 5});         // 1010 / 5, -5.5 / 5
    expect_made({{1}, {7}, {9}, {2}}, 0.499, {4.5});  // (2 + 7) / 2: of an even number the middle two are left
    expect_made({{1}, {7}, {100}}, 0.2, {7});
    expect_made({{1}, {7}}, 0.2, {4});  // of two none can be cut
    expect_made({{7}}, 0.2, {7});
}

TEST(TrimmedMeanTest, TheMedianIsATrimmedMeanThatCutsAllItCan) {
    StrategySpec median;
    median.name = "median";
    for (const std::size_t count : {1U, 2U, 3U, 6U, 7U, 999U, 1000U}) {
        std::vector<float> values;
        for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<float>((7919 * i) % 1009));
        std::vector<Input> inputs;
        for (const float value : values) inputs.push_back(input_of("u", {{f32("w", {value})}}));
        const auto made = Aggregator::plan(median, std::move(inputs), std::vector<double>(count, 1.0));
        std::ranges::sort(values);
        const float middle = (values[(count - 1) / 2] + values[count / 2]) / 2;
        EXPECT_EQ(whole_file(*made, 0).value(), file_of({f32("w", {middle})})) << count;
    }
}

TEST(TrimmedMeanTest, AMinorityMovesNoElementBeyondTheOthers) {
    for (const float lie : {-3e38F, 3e38F}) {
        const std::string bytes = made_of({{1, 4}, {lie, lie}, {2, 5}, {3, 6}, {2, 4}}, 0.2).value();
        float element[2];
        std::memcpy(element, bytes.data() + bytes.size() - sizeof element, sizeof element);
        EXPECT_TRUE(element[0] >= 1 && element[0] <= 3) << element[0];
        EXPECT_TRUE(element[1] >= 4 && element[1] <= 6) << element[1];
    }
}

TEST(TrimmedMeanTest, NanIsRefusedByNameThoughItWouldBeCut) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        const auto made = made_of({{1, 2}, {1, bad}, {3, 4}}, 0.2);
        ASSERT_FALSE(made.ok());
        expect_invalid(made.error(), "w", {"of u1", "element 1"});
    }
}

TEST(TrimmedMeanTest, OrderBlocksAndCutsDoNotChangeTheBitsAndTypesStay) {
    std::vector<std::vector<float>> updates(6, std::vector<float>(5001));
    for (std::size_t i = 0; i < updates.size(); ++i)
        for (std::size_t at = 0; at < updates[i].size(); ++at)
            updates[i][at] = static_cast<float>(std::sin(static_cast<double>(at * 7 + i * 131)));
    std::vector<Input> inputs;
    for (const auto& update : updates) inputs.push_back(input_of("u", {{f16("half", update), f32("single", update)}}));
    std::string reference;
    for (const std::size_t block : {1U << 20, 8U, 100U, 5000U}) {
        std::rotate(inputs.begin(), inputs.begin() + 1, inputs.end());
        const auto aggregator =
            Aggregator::plan(trimmed(0.2), inputs, std::vector<double>(inputs.size(), 1.0), {block});
        ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
        if (reference.empty()) reference = whole_file(*aggregator, 0).value();
        Aggregator::Workspace workspace(*aggregator);
        std::string bytes(reference.size(), '\0');
        for (std::size_t at = 0; at < bytes.size(); at += 777) {
            const auto part = std::as_writable_bytes(std::span(bytes)).subspan(at);
            ASSERT_TRUE(aggregator->read(0, at, part.first(std::min<std::size_t>(777, part.size())), workspace).ok());
        }
        EXPECT_EQ(bytes, reference) << "block " << block;
    }
}

TEST(TrimmedMeanTest, WhatItCannotDoIsRefusedByName) {
    const Input a = input_of("a", {{f32("w", {1})}});
    const auto error = [](const auto& result) { return result.ok() ? std::nullopt : std::optional(result.error()); };
    expect_invalid(error(Aggregator::plan(trimmed(0.2), {a, a}, {1, 2})), "weights", {"alike"});
    for (const double trim : {-0.1, 0.5, std::nan("")})
        expect_invalid(error(Aggregator::plan(trimmed(trim), {a}, {1})), "trim");
    const TestTensor wide{"w", DType::kF64, {1}, bytes_of(std::vector<double>{1})};
    expect_invalid(error(Aggregator::plan(trimmed(0.2), {input_of("b", {{wide}})}, {1})), "w", {"F64"});
}

}  // namespace
}  // namespace atl::aggregate
