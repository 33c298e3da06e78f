#include <cmath>
#include <numeric>

#include "shared/aggregate/testing/memory_models.h"

namespace atl::aggregate {
namespace {

StrategySpec defended() {
    StrategySpec spec;
    spec.clip = 1.3;
    spec.drop = 3;
    return spec;
}

RoundBase base_of(const std::vector<TestTensor>& tensors) {
    return {input_of("base", {tensors})};
}

// What the whole model's measuring gives, cut every `cut` bytes, the pieces in reverse where `backwards`.
std::vector<double> measure_all(const Aggregator& aggregator, std::uint64_t cut, bool backwards = false) {
    Aggregator::Workspace workspace(aggregator);
    std::vector<std::vector<ExactSum>> pieces;
    for (std::size_t file = 0; file < aggregator.files().size(); ++file)
        for (std::uint64_t at = 0; at < aggregator.files()[file].size; at += cut) {
            const std::uint64_t size = std::min(cut, aggregator.files()[file].size - at);
            auto& sums = pieces.emplace_back(aggregator.statistics_count());
            EXPECT_TRUE(aggregator.measure(file, at, size, sums, workspace).ok());
        }
    if (backwards) std::reverse(pieces.begin(), pieces.end());
    std::vector<double> totals;
    for (std::size_t i = 0; i < aggregator.statistics_count(); ++i) {
        ExactSum total;
        for (const auto& piece : pieces) total.add(piece[i]);
        totals.push_back(total.value());
    }
    return totals;
}

Result<std::string> made_of(const std::vector<std::vector<float>>& updates, const std::vector<float>& base,
                            const StrategySpec& spec, Prepared* prepared = nullptr) {
    std::vector<Input> inputs;
    for (const auto& update : updates) inputs.push_back(input_of("u", {{f32("w", update)}}));
    ATOLL_TRY(Aggregator aggregator, Aggregator::plan(spec, std::move(inputs), std::vector<double>(updates.size(), 1.0),
                                                      {}, base_of({f32("w", base)})));
    ATOLL_TRY(const Prepared made, aggregator.prepare(measure_all(aggregator, 1000)));
    if (prepared != nullptr) *prepared = made;
    return whole_file(aggregator, 0);
}

TEST(MeasureTest, NormsAndCosinesAreThoseOfTheChangesWhateverTheTypesBlocksAndCuts) {
    const TestTensor wide{"wide", DType::kF64, {1}, bytes_of(std::vector<double>{4})};
    const TestTensor wide_base{"wide", DType::kF64, {1}, bytes_of(std::vector<double>{1})};
    std::vector<float> many(5001, 0.5F);
    const Input update = input_of("u", {{f16("h", {3, 5}), wide, f32("m", many)}});
    const RoundBase base = base_of({f32("m", std::vector<float>(5001, 0)), f32("h", {1, 1}), wide_base});
    const double square = 4 + 16 + 9 + 5001 * 0.25;  // exact in fp64
    for (const std::size_t block : {8U, 1000U, 1U << 20})
        for (const std::uint64_t cut : {3U, 1000U, 1U << 20}) {
            auto aggregator = Aggregator::plan(defended(), {update, update}, {1, 1}, {block}, base);
            ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
            const auto totals = measure_all(*aggregator, cut);
            EXPECT_EQ(totals, (std::vector<double>{square, square, square, square, square, square, 3}))
                << block << " " << cut;
            EXPECT_EQ(aggregator->prepare(totals)->figures[1].norm, std::sqrt(square));
            EXPECT_EQ(aggregator->prepare(totals)->figures[1].cosine, 1);
        }
}

TEST(MeasureTest, TheSameUpdatesGiveTheSameBitsWhateverTheBlocksAndPartsAndTheirOrder) {
    std::vector<Input> inputs;
    for (int input = 0; input < 4; ++input) {
        std::vector<float> single(9001), half(7000);
        for (std::size_t i = 0; i < single.size(); ++i)
            single[i] = std::sin(static_cast<float>(i * 7 + input * 131)) * (input == 3 ? 20.F : 1.F);
        for (std::size_t i = 0; i < half.size(); ++i) half[i] = std::cos(static_cast<float>(i * 3 + input * 17));
        inputs.push_back(input_of("u", {{f16("h", half), f32("s", single)}}));
    }
    const RoundBase base =
        base_of({f16("h", std::vector<float>(7000, 0.1F)), f32("s", std::vector<float>(9001, 0.3F))});
    std::vector<double> expected;
    std::string bytes;
    for (const std::size_t block : {1U << 20, 8U, 1000U, 5000U})
        for (const std::uint64_t cut : {1U << 20, 777U, 4096U, 10000U})
            for (const bool backwards : {false, true}) {
                auto aggregator = Aggregator::plan(defended(), inputs, {1, 1, 1, 1}, {block}, base);
                const auto totals = measure_all(*aggregator, cut, backwards);
                if (expected.empty()) expected = totals;
                EXPECT_EQ(totals, expected) << block << " " << cut;
                ASSERT_TRUE(aggregator->prepare(totals).ok());
                const std::string made = whole_file(*aggregator, 0).value();
                if (bytes.empty()) bytes = made;
                EXPECT_EQ(made, bytes) << block << " " << cut;
            }
}

TEST(MeasureTest, ACosineIsThatToOthersThatAllCountWhole) {
    Prepared prepared;
    ASSERT_TRUE(made_of({{1, 0}, {1, 0.1F}, {-9, 0}}, {0, 0}, defended(), &prepared).ok());
    EXPECT_EQ(prepared.figures[2].counted, 0);
    EXPECT_LT(prepared.figures[2].cosine.value(), -0.99);
    for (const int honest : {0, 1})
        EXPECT_FALSE(prepared.figures[honest].cosine) << "the others' mean would be that of the liar";
    ASSERT_TRUE(made_of({{1, 0}, {1, 0.1F}, {-1.2F, 0}}, {0, 0}, defended(), &prepared).ok());
    for (const UpdateFigures& one : prepared.figures) EXPECT_TRUE(one.cosine);
}

TEST(MeasureTest, NothingIsMeasuredWithoutABase) {
    const Input input = input_of("u", {{f32("w", {1})}});
    EXPECT_EQ(Aggregator::plan(defended(), {input}, {1})->statistics_count(), 0U);
    auto plain = Aggregator::plan({}, {input}, {1}, {}, base_of({f32("w", {4})}));
    const auto figures = plain->prepare(measure_all(*plain, 7))->figures;
    ASSERT_EQ(figures.size(), 1U) << "norms are shown where every length counts too";
    EXPECT_EQ(figures[0].norm, 3);
    EXPECT_EQ(figures[0].counted, 1);
    StrategySpec spec = defended();
    spec.server_optimizer = ServerOptimizer{};
    auto aggregator = Aggregator::plan(spec, {input}, {1}, {}, base_of({f32("w", {4})}));
    EXPECT_EQ(measure_all(*aggregator, 7), (std::vector<double>{9, 0, 0, 16})) << "the momentum is not measured";
    EXPECT_FALSE(aggregator->prepare(measure_all(*aggregator, 7))->figures[0].cosine) << "of nobody beside it";
}

TEST(MeasureTest, NanIsRefusedByName) {
    std::optional<std::size_t> at_fault;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t input) { at_fault = input; };
    const auto aggregator =
        Aggregator::plan(defended(), {input_of("good", {{f32("w", {1})}}), input_of("bad", {{f32("w", {NAN})}})},
                         {1, 1}, options, base_of({f32("w", {1})}));
    Aggregator::Workspace workspace(*aggregator);
    std::vector<ExactSum> sums(aggregator->statistics_count());
    const Status status = aggregator->measure(0, 0, aggregator->files()[0].size, sums, workspace);
    ASSERT_FALSE(status.ok());
    expect_invalid(status.error(), "w", {"of bad"});
    EXPECT_EQ(at_fault, 1U);
}

TEST(MeasureTest, AChangeThatGoesTooFarIsShortenedAndOneFarBeyondCountsAsNone) {
    // Changes of length 1, 2 and 1: the second is shortened to 1.3.
    Prepared prepared;
    EXPECT_EQ(made_of({{2, 0}, {1, 2}, {2, 0}}, {1, 0}, defended(), &prepared).value(),
              file_of({f32("w", {1 + 2.F / 3, 1.3F * (1.F / 3)})}));
    EXPECT_EQ(prepared.figures[1].norm, 2);
    EXPECT_EQ(prepared.figures[1].counted, 0.65);
    EXPECT_EQ(prepared.figures[1].cosine, 0);
    EXPECT_EQ(prepared.figures[0].counted, 1);
    // Far beyond: as if it had changed nothing, whatever it says.
    for (const float far : {8.F, -3e38F, 60000.F})
        EXPECT_EQ(made_of({{2, 0}, {far, far}, {2, 0}}, {1, 0}, defended()).value(),
                  made_of({{2, 0}, {1, 0}, {2, 0}}, {1, 0}, {}).value())
            << far;
}

TEST(MeasureTest, EveryStrategyGetsTheShortenedChanges) {
    StrategySpec trimmed = defended();
    trimmed.name = "trimmed_mean";
    trimmed.trim = 0;
    EXPECT_EQ(made_of({{2}, {10}, {2}}, {1}, trimmed).value(), made_of({{2}, {1}, {2}}, {1}, trimmed).value());
    StrategySpec nesterov = defended();
    nesterov.server_optimizer = ServerOptimizer{.learning_rate = 1, .beta1 = 0};
    EXPECT_EQ(made_of({{2}, {10}, {2}}, {1}, nesterov).value(), made_of({{2}, {1}, {2}}, {1}, defended()).value());
    const auto wide = [](double value) {
        return TestTensor{"w", DType::kF64, {1}, bytes_of(std::vector<double>{value})};
    };
    auto doubles = Aggregator::plan(defended(),
                                    {input_of("a", {{wide(2)}}), input_of("b", {{wide(3)}}), input_of("c", {{wide(2)}}),
                                     input_of("d", {{wide(1e300)}})},
                                    {1, 1, 1, 1}, {}, base_of({wide(1)}));
    ASSERT_TRUE(doubles->prepare(measure_all(*doubles, 1000)).ok());
    EXPECT_EQ(whole_file(*doubles, 0).value(), file_of({wide(0.25 * 2 + 0.25 * (1 + 0.65 * 2) + 0.25 * 2 + 0.25)}));
}

std::vector<double> shares_of(const std::vector<double>& weights, std::optional<double> max_share = {}) {
    StrategySpec spec;
    spec.max_share = max_share;
    return make_strategy(spec).value()->share_out(weights).value();
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
