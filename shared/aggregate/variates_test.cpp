// Control variates: what travels beside the updates, and their mean.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "shared/adapter/adapter.h"
#include "shared/aggregate/defence.h"
#include "shared/aggregate/files.h"
#include "shared/aggregate/testing/variate_models.h"
#include "shared/base/file.h"

namespace atl::aggregate {
namespace {

constexpr double kPart = 0.7;

StrategySpec with_variates() {
    StrategySpec spec;
    spec.control_variate = kPart;
    spec.clip = kClip.fallback;
    spec.drop = kDrop.fallback;
    return spec;
}

// As tests/numerics/make_variate_mean_goldens.py has them.
const std::vector<std::pair<std::string, std::int64_t>> kTensors = {{"w", 300}, {"v", 5}};

double integer_at(std::size_t j, unsigned site, std::size_t tensor) {
    return static_cast<double>((37 * j + 101 * site + 11 * tensor) % 255) - 127;
}

// Not by encode_block(), which would choose other scales.
std::vector<TestTensor> golden_variate(unsigned site, double size) {
    std::vector<TestTensor> tensors;
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
        const auto& [name, count] = kTensors[t];
        tensors.push_back(variate_tensor(name, {count}, std::vector<float>(static_cast<std::size_t>(count))));
        const std::size_t width = delta::block_bytes(delta::Format::kInt8);
        for (std::size_t block = 0; block * width < tensors.back().bytes.size(); ++block) {
            char* const bytes = &tensors.back().bytes[block * width];
            const auto scale = static_cast<float>(size * static_cast<double>(1 + block + t) / 1024);
            std::memcpy(bytes, &scale, sizeof scale);
            for (std::size_t i = 0; i < delta::kBlockElements; ++i)
                bytes[sizeof scale + i] = static_cast<char>(integer_at(block * delta::kBlockElements + i, site, t));
        }
    }
    return tensors;
}

std::vector<TestTensor> model_tensors(float offset) {
    std::vector<TestTensor> tensors;
    for (const auto& [name, count] : kTensors) {
        std::vector<float> values;
        for (std::int64_t i = 0; i < count; ++i) values.push_back(std::sin(static_cast<float>(i)) + offset);
        tensors.push_back(f32(name, values));
    }
    return tensors;
}

std::vector<Input> golden_inputs(const std::vector<double>& sizes) {
    std::vector<Input> inputs;
    for (unsigned site = 0; site < sizes.size(); ++site) {
        inputs.push_back(input_of("u" + std::to_string(site), {model_tensors(0.01F)}));
        inputs.back().control_variate = variate_file(golden_variate(site, sizes[site]));
    }
    return inputs;
}

RoundBase golden_base(bool has_variate) {
    RoundBase start{.base = input_of("base", {model_tensors(0)}), .digest = kVariateBase};
    if (!has_variate) return start;
    std::vector<TestTensor> tensors;
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
        std::vector<float> values;
        for (std::size_t j = 0; std::cmp_less(j, kTensors[t].second); ++j)
            values.push_back(static_cast<float>(integer_at(j, 7, t) / 512));
        tensors.push_back(bf16(kTensors[t].first, {kTensors[t].second}, values));
    }
    start.control_variate = input_of("base's", {tensors});
    return start;
}

struct Case {
    std::string name;
    std::vector<double> sizes, shares;
    bool has_base = false;
    std::vector<double> absent = {};
};

TEST(VariatesTest, TheirMeanIsTheFormulasAndWhatIsTooLongIsShortenedOrLeftOut) {
    const auto goldens = nlohmann::json::parse(read_file(ATOLL_GOLDEN_DIR "/variate_means/variate_means.json").value());
    const std::vector<double> three = {0.5, 0.3, 0.2};
    for (const Case& one : {Case{"alike", {1, 1.25, 0.75}, three}, Case{"long", {1, 1.25, 2.5}, three},
                            Case{"far", {1, 8, 1.25}, three}, Case{"zero", {1, 0, 1.25}, three},
                            Case{"two", {1, 2}, {0.5, 0.5}}, Case{"one is absent", {1, 1.25}, {1, 1}, true, {2}},
                            Case{"one is absent and the others have less", {0.25, 0.25}, {1, 1}, true, {2}}}) {
        SCOPED_TRACE(one.name);
        RoundBase start = golden_base(one.has_base);
        start.absent = one.absent;
        auto aggregator = Aggregator::plan(with_variates(), golden_inputs(one.sizes), one.shares, {}, std::move(start));
        ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
        ASSERT_EQ(aggregator->files().size(), 2U);
        EXPECT_EQ(aggregator->files()[1].path, "control_variate/part0.safetensors");
        const Prepared prepared = aggregator->prepare(all_totals(*aggregator)).value();
        const std::string file = whole_file(*aggregator, 1).value();
        const auto& golden = goldens.at(one.name);
        for (std::size_t i = 0; i < one.sizes.size(); ++i)
            EXPECT_NEAR(prepared.figures[i].control_variate->counted, golden.at("parts").at(i).get<double>(), 1e-9);
        std::size_t behind = 0;
        for (auto tensor = kTensors.rbegin(); tensor != kTensors.rend(); ++tensor) {
            const auto count = static_cast<std::size_t>(tensor->second);
            const std::vector<float> made = bf16_at_end(file, count, behind);
            behind += 2 * count;
            for (std::size_t j = 0; j < count; ++j) {
                const double expected = golden.at(tensor->first).at(j).get<double>();
                EXPECT_NEAR(made[j], expected, std::abs(expected) / 250 + 1e-6) << tensor->first << " " << j;
            }
        }
    }
}

TEST(VariatesTest, WithoutClipAndDropAnyLengthCountsAndTheModelIsTheSameWithThemOrWithout) {
    StrategySpec spec = with_variates();
    spec.clip = spec.drop = std::nullopt;
    auto free = Aggregator::plan(spec, golden_inputs({1, 8, 1.25}), {1, 1, 1}, {}, golden_base(false)).value();
    const Prepared prepared = free.prepare(all_totals(free)).value();
    for (const UpdateFigures& one : prepared.figures) EXPECT_EQ(one.control_variate->counted, 1);
    auto plain = Aggregator::plan({}, golden_inputs({1, 8, 1.25}), {1, 1, 1}, {}, golden_base(false)).value();
    EXPECT_FALSE(plain.prepare(totals_of(plain)).value().figures.front().control_variate);
    EXPECT_EQ(plain.files().size(), 1U);
    EXPECT_EQ(whole_file(free, 0).value() == whole_file(plain, 0).value(), true);
}

TEST(VariatesTest, AnUpdateThatCountsForNothingHasNoneEither) {
    std::vector<Input> inputs = golden_inputs({1, 1, 1});
    const auto variate = inputs[1].control_variate;
    inputs[1] = input_of("far", {model_tensors(5)});
    inputs[1].control_variate = variate;
    auto aggregator = Aggregator::plan(with_variates(), inputs, {1, 1, 1}, {}, golden_base(false)).value();
    const Prepared prepared = aggregator.prepare(all_totals(aggregator)).value();
    EXPECT_EQ(prepared.figures[1].counted, 0);
    EXPECT_EQ(prepared.figures[1].control_variate->counted, 0);
    EXPECT_EQ(prepared.figures[0].control_variate->counted, 1);
    // As one of zeros whose update is as far.
    inputs[1].control_variate = variate_file(golden_variate(1, 0));
    auto zeros = Aggregator::plan(with_variates(), inputs, {1, 1, 1}, {}, golden_base(false)).value();
    ASSERT_TRUE(zeros.prepare(all_totals(zeros)).ok());
    EXPECT_EQ(whole_file(aggregator, 1).value() == whole_file(zeros, 1).value(), true);
}

TEST(VariatesTest, TheBytesDependOnNoCutNoBlockAndNoOrderOfMeasuring) {
    constexpr std::int64_t kRows = 70, kColumns = 111;
    const auto values = [](unsigned seed) {
        std::mt19937 dice(seed);
        std::vector<float> all(kRows * kColumns);
        for (float& value : all) value = static_cast<float>(dice()) / 0x1p32F - 0.5F;
        return all;
    };
    const auto matrix = [&](unsigned seed) {
        return TestTensor{"w", DType::kF32, {kRows, kColumns}, bytes_of(values(seed))};
    };
    const auto plan = [&](std::size_t block_bytes) {
        std::vector<Input> inputs;
        for (unsigned i = 0; i < 3; ++i) {
            inputs.push_back(input_of("u", {{matrix(i), f32("v", {1, 2, 3})}}));
            inputs.back().control_variate = variate_file({variate_tensor("w", {kRows, kColumns}, values(10 + i)),
                                                          variate_tensor("v", {3}, {1, 2, static_cast<float>(i)})});
        }
        RoundBase start{.base = input_of("base", {{matrix(9), f32("v", {1, 1, 1})}}), .digest = kVariateBase};
        start.control_variate =
            input_of("base's", {{bf16("w", {kRows, kColumns}, values(8)), bf16("v", {3}, {1, 1, 1})}});
        start.absent = {1};
        AggregatorOptions options;
        options.block_bytes = block_bytes;
        return Aggregator::plan(with_variates(), std::move(inputs), {1, 2, 3}, options, std::move(start)).value();
    };
    auto first = plan(128 << 10);
    const std::vector<double> totals = all_totals(first);
    ASSERT_TRUE(first.prepare(totals).ok());
    const std::string made = whole_file(first, 1).value();
    for (const std::size_t block : {std::size_t{8}, std::size_t{4096}, std::size_t{9000}}) {
        for (const std::size_t piece : {std::size_t{61}, std::size_t{4099}}) {
            auto again = plan(block);
            const std::vector<double> pieces_totals = all_totals(again, piece);
            EXPECT_EQ(pieces_totals, totals) << block << " " << piece;
            ASSERT_TRUE(again.prepare(pieces_totals).ok());
            Aggregator::Workspace workspace(again);
            std::string pieces(made.size(), '\0');
            for (std::size_t at = 0; at < pieces.size(); at += piece)
                ASSERT_TRUE(
                    again
                        .read(
                            1, at,
                            std::as_writable_bytes(std::span(pieces)).subspan(at, std::min(piece, pieces.size() - at)),
                            workspace)
                        .ok());
            EXPECT_EQ(pieces == made, true) << block << " " << piece;
        }
    }
}

TEST(VariatesTest, TheyAreReadABlockAtATime) {
    constexpr std::int64_t kLong = 300'000;
    constexpr std::size_t kBlock = 64 << 10;
    std::vector<Input> inputs;
    const std::vector<float> ones(kLong, 1);
    for (int i = 0; i < 2; ++i) {
        inputs.push_back(input_of("u", {{f32("w", ones)}}));
        inputs.back().control_variate = variate_file({variate_tensor("w", {kLong}, ones)});
    }
    const std::vector<Input> read = inputs;
    AggregatorOptions options;
    options.block_bytes = kBlock;
    auto aggregator = Aggregator::plan(with_variates(), std::move(inputs), {1, 1}, options,
                                       RoundBase{.base = read.front(), .digest = kVariateBase})
                          .value();
    ASSERT_TRUE(aggregator.prepare(all_totals(aggregator)).ok());
    ASSERT_TRUE(whole_file(aggregator, 1).ok());
    for (const Input& input : read)
        EXPECT_LE(dynamic_cast<const MemoryFile&>(*input.control_variate).largest_read(), kBlock);
}

// What plan(), or measuring, says where the second update's control variate is this one.
struct Refusal {
    std::optional<Error> error;
    std::optional<std::size_t> fault;
};

Refusal refusal_of(const std::shared_ptr<const ByteSource>& variate) {
    std::vector<Input> inputs = golden_inputs({1, 1, 1});
    inputs[1].control_variate = variate;
    Refusal refusal;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t input) { refusal.fault = input; };
    const auto plan = Aggregator::plan(with_variates(), inputs, {1, 1, 1}, options, golden_base(false));
    EXPECT_TRUE(Aggregator::plan({}, inputs, {1, 1, 1}, {}, golden_base(false)).ok())
        << "who does not ask does not look";
    if (!plan.ok()) {
        refusal.error = plan.error();
        return refusal;
    }
    std::vector<ExactSum> sums(plan->statistics_count());
    Aggregator::Workspace workspace(*plan);
    const Status measured = plan->measure(1, 0, plan->files()[1].size, sums, workspace);
    if (!measured.ok()) refusal.error = measured.error();
    return refusal;
}

void expect_refused(const std::shared_ptr<const ByteSource>& variate, const std::string& field,
                    const std::string& words) {
    SCOPED_TRACE(words);
    const Refusal refusal = refusal_of(variate);
    expect_invalid(refusal.error, field, {"u1/control_variate.safetensors", words});
    EXPECT_EQ(refusal.fault, 1U);
}

TEST(VariatesTest, WhatIsMissingOrDoesNotFitNamesItsUpdateAndTensor) {
    EXPECT_FALSE(refusal_of(variate_file(golden_variate(1, 1))).error);
    expect_refused(nullptr, "control_variate.safetensors", "is missing");
    expect_refused(std::make_shared<MemoryFile>("x"), "control_variate.safetensors", "too short");
    expect_refused(variate_file(golden_variate(1, 1), "another"), delta::kBaseKey, "of a training of another model");
    expect_refused(variate_file(golden_variate(1, 1), kVariateBase, "int4"), delta::kFormatKey, "must be int8");
    expect_refused(variate_file(golden_variate(1, 1), kVariateBase, "int2"), delta::kFormatKey, "int8 or int4");
    expect_refused(std::make_shared<MemoryFile>(file_of(golden_variate(1, 1))), delta::kFormatKey, "atoll.delta");
    std::vector<TestTensor> tensors = golden_variate(1, 1);
    tensors.pop_back();
    expect_refused(variate_file(tensors), "v", "lacks tensor \"v\" of base");
    tensors = golden_variate(1, 1);
    tensors.push_back(variate_tensor("more", {3}, {1, 2, 3}));
    expect_refused(variate_file(tensors), "more", "has tensor \"more\"");
    tensors = golden_variate(1, 1);
    tensors[0] = variate_tensor("w", {100}, std::vector<float>(100));
    expect_refused(variate_file(tensors), "w", "must be U8[3, 132]");
    tensors[0] = variate_tensor("w", {300}, std::vector<float>(300), delta::Format::kInt4);
    expect_refused(variate_file(tensors), "w", "must be U8[3, 132]");
}

TEST(VariatesTest, AScaleThatGivesNoFiniteNumberNamesItsUpdateTensorAndElement) {
    for (const float scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
        std::vector<TestTensor> tensors = golden_variate(1, 1);
        std::memcpy(&tensors[0].bytes[delta::block_bytes(delta::Format::kInt8)], &scale, sizeof scale);
        expect_refused(variate_file(tensors), "w", "holds NaN or infinity at element 128");
    }
}

TEST(VariatesTest, BeforeItIsHandedInASiteSeesThatItsOwnIsFinite) {
    std::vector<Input> inputs = golden_inputs({1});
    EXPECT_TRUE(check_finite(inputs).ok());
    std::vector<TestTensor> tensors = golden_variate(0, 1);
    const float scale = std::numeric_limits<float>::infinity();
    std::memcpy(tensors[1].bytes.data(), &scale, sizeof scale);
    inputs[0].control_variate = variate_file(tensors);
    expect_invalid(check_finite(inputs).error(), "v", {"u0/control_variate.safetensors", "element 0"});
}

TEST(VariatesTest, AMeanBeyondBf16NamesWhoHoldsTheLargestNumbers) {
    StrategySpec spec = with_variates();
    spec.clip = spec.drop = std::nullopt;
    std::vector<Input> inputs = golden_inputs({1, 1, 1});
    std::vector<TestTensor> tensors = golden_variate(2, 0);
    // Finite in fp32, and rounded to infinity in BF16.
    const float scale = 0x1.ff8p127F / 127;
    std::memcpy(tensors[1].bytes.data(), &scale, sizeof scale);
    tensors[1].bytes[sizeof scale] = 127;
    inputs[2].control_variate = variate_file(tensors);
    std::optional<std::size_t> fault;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t input) { fault = input; };
    auto aggregator = Aggregator::plan(spec, inputs, {0, 1, 1e6}, options, golden_base(false)).value();
    ASSERT_TRUE(aggregator.prepare(all_totals(aggregator)).ok());
    const auto made = whole_file(aggregator, 1);
    ASSERT_FALSE(made.ok());
    expect_invalid(made.error(), "v", {"overflows BF16", "u2"});
    EXPECT_EQ(fault, 2U);
}

TEST(VariatesTest, WhatHasNoneIsRefused) {
    expect_invalid(Aggregator::plan(with_variates(), golden_inputs({1, 1}), {1, 1}).error(), "strategy");
    for (const char* name : {"trimmed_mean", "median", "product"})
        expect_invalid(parse_strategy({{"name", name}, {"control_variate", 0.7}}).error(), "strategy.control_variate");
    for (const double wrong : {0.0, -1.0, 1.5})
        expect_invalid(parse_strategy({{"name", "fedavg"}, {"control_variate", wrong}}).error(),
                       "strategy.control_variate");
    expect_invalid(parse_strategy({{"name", "fedavg"}, {"control_variate", "yes"}}).error(),
                   "strategy.control_variate");
    StrategySpec spec = with_variates();
    spec.control_variate = 2;
    expect_invalid(make_strategy(spec).error(), "control_variate");
    const auto parsed = parse_strategy({{"name", "fedavg"}, {"control_variate", 0.5}});
    EXPECT_EQ(parsed->control_variate, 0.5);
    EXPECT_EQ(to_json(*parsed).at("control_variate"), 0.5);
    for (const nlohmann::json& none :
         {nlohmann::json{{"name", "fedavg"}}, nlohmann::json{{"name", "fedavg"}, {"control_variate", nullptr}}}) {
        EXPECT_FALSE(parse_strategy(none)->control_variate);
        EXPECT_FALSE(to_json(*parse_strategy(none)).contains("control_variate"));
    }
    const Input adapter{"a", {{adapter::kWeightsFile, std::make_shared<MemoryFile>(file_of({f32("w", {1})}))}}};
    expect_invalid(Aggregator::plan(with_variates(), {adapter}, {1}, {}, RoundBase{adapter}).error(),
                   "strategy.control_variate", {"adapters"});
    const Input wide = input_of("f64", {{{"w", DType::kF64, {1}, std::string(8, '\0')}}});
    expect_invalid(Aggregator::plan(with_variates(), {wide}, {1}, {}, RoundBase{wide}).error(), "w", {"F64"});
}

TEST(VariatesTest, OfIntegersThereAreNone) {
    const auto model = [](const std::string& name) {
        return input_of(name, {{f32("w", {1, 2}), i64("n", {1, 2, 3})}, {i64("m", {4})}});
    };
    Input update = model("u");
    update.control_variate = variate_file({variate_tensor("w", {2}, {3, -3})});
    auto aggregator = Aggregator::plan(with_variates(), {update, update}, {1, 1}, {},
                                       RoundBase{.base = model("base"), .digest = kVariateBase})
                          .value();
    ASSERT_EQ(aggregator.files().size(), 4U);
    ASSERT_TRUE(aggregator.prepare(all_totals(aggregator)).ok());
    EXPECT_EQ(bf16_at_end(whole_file(aggregator, 2).value(), 2), (std::vector<float>{3, -3}));
    EXPECT_TRUE(whole_file(aggregator, 3).ok()) << "a file without tensors";
}

using Parts = std::vector<double>;

VariateParts variate_parts(const Parts& norms, double base, const StrategySpec& strategy = with_variates()) {
    return parts_of_variates(norms, Parts(norms.size(), 1.0), base, strategy);
}

TEST(VariatesTest, NoneIsLongerThanWhatIsUsualNowWhateverTheBaseHas) {
    for (const double base : {0.0, 1e-9, 1.0, 100.0, 8e36}) {
        SCOPED_TRACE(base);
        EXPECT_EQ(variate_parts({1, 2}, base).updates, (Parts{1, 0.7}));
        EXPECT_EQ(variate_parts({1, 1e9, 1.25}, base).updates, (Parts{1, 0, 1}));
        EXPECT_EQ(variate_parts({2, 2, 4}, base).updates, (Parts{1, 1, 0.7}));
        EXPECT_EQ(variate_parts({2, 2, 2, 9}, base).updates, (Parts{1, 1, 1, 0}));
    }
    EXPECT_EQ(variate_parts({1, 1}, 1.25).base, 1);
    EXPECT_DOUBLE_EQ(variate_parts({1, 1}, 7).base, 0.2) << "it is shortened as the others are";
    EXPECT_DOUBLE_EQ(variate_parts({7, 1, 1}, 7).base, 0.2);
    EXPECT_EQ(variate_parts({1, 1}, 0).base, 1);
}

TEST(VariatesTest, WhereFewerThanTwoCountNoneDoes) {
    for (const Parts& norms : {Parts{5}, Parts{1, 9}, Parts{0, 3}, Parts{0, 0, 3}, Parts{0, 0}}) {
        const VariateParts parts = variate_parts(norms, 2);
        EXPECT_EQ(parts.are_too_few, true);
        EXPECT_EQ(parts.updates, Parts(norms.size(), 0.0));
    }
    const std::vector<double> norms = {1, 1}, counted = {1, 0};
    EXPECT_TRUE(parts_of_variates(norms, counted, 0, with_variates()).are_too_few) << "of one the change is left out";
    EXPECT_FALSE(variate_parts({1, 1.2}, 0).are_too_few);
}

// Whatever a site has sent: the mean comes down with what the others send, and at once.
TEST(VariatesTest, TheMeanNeverGoesOnWithWhatALiarOnceSent) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{3}})
        for (const double lie : {0.0, 1e-9, 1.39, 1e4, 8e36}) {
            double base = 8e36;  // however it came there
            for (int round = 0; round < 5; ++round) {
                Parts norms(count, 1.0);
                if (count > 1) norms.back() = lie;
                const VariateParts parts = variate_parts(norms, base);
                double mean = 0;
                for (std::size_t i = 0; i < count; ++i)
                    mean += parts.updates[i] * norms[i] / static_cast<double>(count);
                base = mean;
                EXPECT_LE(base, 1.4 * (1 + 1e-12)) << count << " " << lie;
            }
        }
}

TEST(VariatesTest, OfASingleUpdateThereIsNoMean) {
    auto lone = Aggregator::plan(with_variates(), golden_inputs({1}), {1}, {}, golden_base(false)).value();
    EXPECT_TRUE(lone.leaves_out(1));
    const Prepared prepared = lone.prepare(all_totals(lone)).value();
    EXPECT_GT(prepared.figures[0].control_variate->norm, 0) << "it is measured all the same";
    EXPECT_EQ(prepared.figures[0].control_variate->counted, 0);
    EXPECT_TRUE(lone.leaves_out(1));
    EXPECT_FALSE(lone.leaves_out(0));
    auto two = Aggregator::plan(with_variates(), golden_inputs({1, 9}), {1, 1}, {}, golden_base(false)).value();
    EXPECT_FALSE(two.leaves_out(1));
    ASSERT_TRUE(two.prepare(all_totals(two)).ok());
    EXPECT_TRUE(two.leaves_out(1)) << "one of both is far too long";
    auto one = Aggregator::plan(with_variates(), golden_inputs({1, 1}), {1, 0}, {}, golden_base(false)).value();
    ASSERT_TRUE(one.prepare(all_totals(one)).ok());
    EXPECT_TRUE(one.leaves_out(1)) << "one of both has no share";

    StrategySpec unbounded = with_variates();
    unbounded.clip = unbounded.drop = std::nullopt;
    for (const StrategySpec& strategy : {with_variates(), unbounded}) {
        auto beside_a_base = Aggregator::plan(strategy, golden_inputs({1}), {1}, {}, golden_base(true)).value();
        ASSERT_TRUE(beside_a_base.prepare(all_totals(beside_a_base)).ok());
        EXPECT_TRUE(beside_a_base.leaves_out(1));
    }
}

TEST(VariatesTest, DirectoriesHaveThemBesideTheirModelAndTheNextRoundFindsTheMean) {
    const TemporaryDirectory directory;
    const auto path = [&](const std::string& name) { return directory.path() / name; };
    const auto write = [&](const std::string& name, float offset) {
        std::filesystem::create_directory(path(name));
        EXPECT_TRUE(write_file_atomic(path(name) / "model.safetensors", file_of(model_tensors(offset))).ok());
    };
    write("base", 0);
    for (unsigned i = 0; i < 3; ++i) {
        write("u" + std::to_string(i), 0.01F);
        EXPECT_TRUE(write_file_atomic(
                        path("u" + std::to_string(i)) / delta::kControlVariateFile,
                        file_of(golden_variate(i, 1), {{delta::kFormatKey, "int8"}, {delta::kBaseKey, kVariateBase}}))
                        .ok());
    }
    const auto make = [&](const std::string& base, const std::string& out, int threads) {
        RoundBase start{.base = open_directory(path(base)).value(), .absent = {3}, .digest = kVariateBase};
        if (base != "base") start.control_variate = open_directory(path(base) / delta::kControlVariateFolder).value();
        std::vector<Input> inputs;
        for (unsigned i = 0; i < 3; ++i) inputs.push_back(open_directory(path("u" + std::to_string(i))).value());
        auto aggregator = Aggregator::plan(with_variates(), std::move(inputs), {1, 1, 1}, {}, std::move(start));
        ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
        WriteOptions options;
        options.threads = threads;
        ASSERT_TRUE(measure_inputs(*aggregator, {}, options).ok());
        ASSERT_TRUE(write_aggregate(*aggregator, path(base), path(out), options).ok());
    };
    const auto mean = [&](const std::string& out) {
        return bf16_at_end(read_file(path(out) / "control_variate/model.safetensors").value(), 5);
    };
    make("base", "round1", 1);
    make("base", "again", 5);
    EXPECT_EQ(mean("round1"), mean("again"));
    EXPECT_FALSE(std::filesystem::exists(path("round1") / delta::kControlVariateFile));
    make("round1", "round2", 2);
    for (std::size_t j = 0; j < 5; ++j)  // half of it is of those that are absent
        EXPECT_NEAR(mean("round2")[j], 1.5 * static_cast<double>(mean("round1")[j]),
                    0.01 * std::abs(mean("round1")[j]));
    // Without control variates what was left of them goes.
    std::vector<Input> inputs;
    inputs.push_back(open_directory(path("u0")).value());
    auto plain = Aggregator::plan({}, std::move(inputs), {1}, {}, RoundBase{open_directory(path("round1")).value()});
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    ASSERT_TRUE(write_aggregate(*plain, path("round1"), path("plain")).ok());
    EXPECT_FALSE(std::filesystem::exists(path("plain") / "control_variate"));
}

}  // namespace
}  // namespace atl::aggregate
