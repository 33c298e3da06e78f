// Updates that are changes of the base (shared/delta), beside whole models.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "shared/aggregate/files.h"
#include "shared/aggregate/testing/adapters.h"
#include "shared/base/file.h"
#include "shared/delta/base_digest.h"
#include "shared/delta/delta.h"
#include "shared/model_config/token_counts.h"

namespace atl::aggregate {
namespace {

using delta::Format;

constexpr const char* kBaseName = "0123abcd";

// An update as both: the change of the base, and the model that it stands for.
struct Both {
    Input change;
    Input whole;
};

std::vector<float> values_of(const TestTensor& tensor) {
    std::vector<float> values(tensor.bytes.size() / static_cast<std::size_t>(safetensors::size_bytes(tensor.dtype)));
    const auto* stored = reinterpret_cast<const std::byte*>(tensor.bytes.data());
    if (tensor.dtype == DType::kF16) numeric::conversions().widen_f16(values.data(), stored, values.size());
    if (tensor.dtype == DType::kF32) std::memcpy(values.data(), stored, tensor.bytes.size());
    return values;
}

Input change_input(const std::string& name, const std::vector<TestTensor>& tensors, Format format,
                   const std::string& base = kBaseName) {
    const std::string file = file_of(tensors, {{delta::kFormatKey, delta::to_string(format)}, {delta::kBaseKey, base}});
    return {name, {{delta::kFile, std::make_shared<MemoryFile>(file)}}};
}

TestTensor packed(const TestTensor& of_base, Format format, const std::vector<float>& change) {
    const auto info = delta::packed_tensor(format, {of_base.name, of_base.dtype, of_base.shape, 0, 0});
    std::string bytes(static_cast<std::size_t>(info.element_count()), '\0');
    std::vector<float> left = change;
    for (std::size_t at = 0, block = 0; at < left.size(); at += delta::kBlockElements, ++block)
        EXPECT_TRUE(delta::encode_block(format,
                                        std::span(left).subspan(at, std::min(delta::kBlockElements, left.size() - at)),
                                        std::as_writable_bytes(std::span(bytes))
                                            .subspan(block * delta::block_bytes(format), delta::block_bytes(format))));
    return {info.name, info.dtype, info.shape, bytes};
}

// Changes each element of the base by a number from -size to size.
Both make_update(const std::string& name, const std::vector<TestTensor>& base, Format format, unsigned seed,
                 double size) {
    std::mt19937 dice(seed);
    std::vector<TestTensor> changes, whole;
    for (const TestTensor& tensor : base) {
        std::vector<float> values = values_of(tensor), change;
        for (std::size_t i = 0; i < values.size(); ++i)
            change.push_back(static_cast<float>(size * (static_cast<double>(dice()) / 0x1p31 - 1)));
        changes.push_back(packed(tensor, format, change));
        delta::add_changes(format, std::as_bytes(std::span(changes.back().bytes)), 0, values);
        whole.push_back({tensor.name, DType::kF32, tensor.shape, bytes_of(values)});
    }
    return {change_input(name, changes, format), input_of(name, {whole})};
}

TestTensor shaped(TestTensor tensor, std::vector<std::int64_t> shape) {
    tensor.shape = std::move(shape);
    return tensor;
}

std::vector<float> waves(std::size_t count, double phase) {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(i) + phase)));
    return values;
}

// Tensors of several blocks, tiles and types, the smallest of one element.
std::vector<TestTensor> base_tensors() {
    return {shaped(f16("model.embed_tokens.weight", waves(70 * 41, 0)), {70, 41}), f32("norm", waves(5, 1)),
            f16("wide", waves(5000, 2)), f32("one", {0.25F})};
}

RoundBase start_of(const std::vector<TestTensor>& tensors) {
    return {.base = input_of("base", {tensors}), .digest = kBaseName};
}

struct MadeRound {
    std::vector<std::string> files;
    std::vector<double> totals;
};

MadeRound make_round(const StrategySpec& spec, std::vector<Input> inputs, RoundBase start, std::size_t block_bytes,
                     std::size_t piece) {
    AggregatorOptions options;
    options.block_bytes = block_bytes;
    std::vector<double> weights(inputs.size(), 1.0);
    auto aggregator = Aggregator::plan(spec, std::move(inputs), weights, options, std::move(start));
    EXPECT_TRUE(aggregator.ok()) << aggregator.error().message;
    MadeRound made;
    made.totals = totals_of(*aggregator, piece);
    EXPECT_TRUE(aggregator->prepare(made.totals).ok());
    Aggregator::Workspace workspace(*aggregator);
    for (std::size_t file = 0; file < aggregator->files().size(); ++file) {
        std::string& bytes = made.files.emplace_back(aggregator->files()[file].size, '\0');
        for (std::size_t at = 0; at < bytes.size(); at += piece) {
            const auto into = std::as_writable_bytes(std::span(bytes)).subspan(at, std::min(piece, bytes.size() - at));
            const Status read = aggregator->read(file, at, into, workspace);
            EXPECT_TRUE(read.ok()) << read.error().message;
        }
    }
    return made;
}

std::vector<StrategySpec> strategies() {
    StrategySpec outer, rows, trimmed, clipped;
    outer.server_optimizer = ServerOptimizer();
    rows.weighs_rows = true;
    trimmed.name = "trimmed_mean";
    clipped.clip = 1.0;
    clipped.drop = 50.0;
    return {StrategySpec(), outer, rows, trimmed, clipped};
}

TEST(ChangeTest, AChangeCountsAsTheModelThatItStandsForWhateverTheStrategyBlocksAndParts) {
    const std::vector<TestTensor> base = base_tensors();
    for (const Format format : {Format::kInt8, Format::kInt4}) {
        std::vector<Both> updates;
        for (unsigned i = 0; i < 3; ++i)
            updates.push_back(make_update("u" + std::to_string(i), base, format, i, i == 2 ? 0.3 : 0.05));
        for (Both& update : updates)
            update.change.token_counts = update.whole.token_counts =
                std::make_shared<MemoryFile>(file_of({f32(model_config::kTokenCounts, std::vector<float>(70, 1))}));
        for (const StrategySpec& spec : strategies()) {
            SCOPED_TRACE(to_json(spec).dump());
            const MadeRound whole = make_round(spec, {updates[0].whole, updates[1].whole, updates[2].whole},
                                               start_of(base), 128 << 10, 1 << 20);
            const std::vector<Input> changes = {updates[0].change, updates[1].change, updates[2].change};
            const std::vector<Input> mixed = {updates[0].change, updates[1].whole, updates[2].change};
            for (const std::size_t block : {std::size_t{8}, std::size_t{1000}, std::size_t{128} << 10})
                for (const auto& inputs : {changes, mixed}) {
                    const MadeRound made = make_round(spec, inputs, start_of(base), block, 4099);
                    EXPECT_EQ(made.files == whole.files, true) << block;
                    EXPECT_EQ(made.totals, whole.totals) << block;
                }
        }
    }
}

TEST(ChangeTest, OfAdaptersTheProductIsThatOfTheModelsTheyStandFor) {
    StrategySpec spec;
    spec.name = "product";
    const std::vector<TestTensor> base = tensors_of(random_adapter(40, 30, 4, 1), DType::kF16);
    std::vector<Input> changes, whole;
    for (unsigned i = 0; i < 3; ++i) {
        const Both both = make_update("u" + std::to_string(i), base, Format::kInt4, i, 0.1);
        changes.push_back(both.change);
        whole.push_back(both.whole);
    }
    const MadeRound expected = make_round(spec, whole, start_of(base), 128 << 10, 1 << 20);
    for (const std::size_t block : {std::size_t{8}, std::size_t{300}, std::size_t{128} << 10}) {
        const MadeRound made = make_round(spec, changes, start_of(base), block, 501);
        EXPECT_EQ(made.files == expected.files, true) << block;
        EXPECT_EQ(made.totals, expected.totals) << block;
    }
}

TEST(ChangeTest, NoMoreThanABlockIsReadAtATime) {
    const std::vector<TestTensor> base = {f32("w", waves(300'000, 0))};
    const Both update = make_update("u", base, Format::kInt4, 1, 0.1);
    constexpr std::size_t kBlock = 8192;
    const RoundBase start = start_of(base);
    make_round({}, {update.change, update.change}, start, kBlock, 1 << 20);
    const auto largest_read = [](const Input& input) {
        return dynamic_cast<const MemoryFile&>(*input.files[0].bytes).largest_read();
    };
    constexpr std::size_t kMeasured = 2048 * sizeof(double);  // a tile, which is measured at once
    EXPECT_LE(largest_read(update.change), kMeasured / 4 / 128 * 68 + 68);
    EXPECT_LE(largest_read(start.base), kMeasured);
}

struct RefusedChange {
    std::optional<Error> error;
    std::optional<std::size_t> fault;
};

// Of a round of a good change and a bad one.
RefusedChange refusal_of_change(const Input& good, const Input& bad, std::optional<RoundBase> start,
                                StrategySpec spec = {}) {
    RefusedChange refused;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t input) { refused.fault = input; };
    auto aggregator = Aggregator::plan(spec, {good, bad}, {1, 1}, options, std::move(start));
    if (!aggregator.ok()) {
        refused.error = aggregator.error();
        return refused;
    }
    const auto bytes = whole_file(*aggregator, 0);
    if (!bytes.ok()) refused.error = bytes.error();
    std::vector<ExactSum> sums(aggregator->statistics_count());
    Aggregator::Workspace workspace(*aggregator);
    const Status measured = aggregator->measure(0, 0, aggregator->files()[0].size, sums, workspace);
    EXPECT_EQ(measured.ok(), bytes.ok()) << "what is measured is what is read";
    return refused;
}

TEST(ChangeTest, WhatDoesNotFitTheBaseIsRefusedByTensorAndUpdate) {
    const std::vector<TestTensor> base = {f32("w", waves(300, 0)), f32("b", waves(7, 1))};
    const RoundBase start = start_of(base);
    const Input good = make_update("good", base, Format::kInt4, 1, 0.1).change;
    const TestTensor w = packed(base[0], Format::kInt4, waves(300, 3)), b = packed(base[1], Format::kInt4, waves(7, 4));
    const auto refuse = [&](const std::vector<TestTensor>& tensors, const std::string& field, const std::string& words,
                            const std::string& of = kBaseName) {
        const RefusedChange refused = refusal_of_change(good, change_input("bad", tensors, Format::kInt4, of), start);
        expect_invalid(refused.error, field, {"bad", words});
        EXPECT_EQ(refused.fault, 1U) << words;
    };
    refuse({shaped(w, {2, 102}), b}, "w", "U8[2, 102]");
    refuse({{"w", DType::kU8, {2, 68}, w.bytes.substr(0, 136)}, b}, "w", "must be U8[3, 68]");
    refuse({packed(base[0], Format::kInt8, waves(300, 3)), b}, "w", "U8[3, 132]");
    refuse({base[0], b}, "w", "F32[300]");
    refuse({w}, "b", "lacks tensor \"b\"");
    refuse({w, b, f32("more", {1})}, "more", "has tensor \"more\"");
    refuse({w, b}, delta::kBaseKey, "a change of another model (\"ffff\") than base (\"0123abcd\")", "ffff");
}

TEST(ChangeTest, WhatIsNoDeltaOrHasNoBaseIsRefused) {
    const std::vector<TestTensor> base = {f32("w", waves(300, 0))};
    const Both good = make_update("good", base, Format::kInt8, 1, 0.1);
    const auto file = [&](const std::string& bytes) {
        return Input{"bad", {{delta::kFile, std::make_shared<MemoryFile>(bytes)}}};
    };
    const std::string of_model = file_of(base);
    expect_invalid(refusal_of_change(good.change, file(of_model), start_of(base)).error, delta::kFormatKey, {"bad"});
    expect_invalid(refusal_of_change(good.change, file("x"), start_of(base)).error, delta::kFile, {"too short"});
    Input two = good.change;
    two.files.push_back(good.whole.files.front());
    expect_invalid(refusal_of_change(good.change, two, start_of(base)).error, delta::kFile, {"beside other weights"});
    expect_invalid(refusal_of_change(good.whole, good.change, {}).error, delta::kFile,
                   {"the model that it was trained from"});
    const std::vector<TestTensor> counted = {f32("w", waves(300, 0)), i64("steps", {4})};
    const Input with_steps = change_input(
        "bad",
        {packed(base[0], Format::kInt8, waves(300, 3)), packed({"steps", DType::kI64, {1}, ""}, Format::kInt8, {1})},
        Format::kInt8);
    expect_invalid(refusal_of_change(input_of("good", {counted}), with_steps, start_of(counted)).error, "steps",
                   {"a delta cannot change"});
    expect_invalid(
        refusal_of_change(good.change, good.change, RoundBase{.base = good.change, .digest = kBaseName}).error,
        delta::kFile, {"no base for others"});
    RoundBase any = start_of(base);
    any.digest.clear();
    EXPECT_FALSE(refusal_of_change(good.whole, good.change, any).error);
}

TEST(ChangeTest, AScaleThatIsNotFiniteIsTheFaultOfItsUpdateWhateverTheStrategy) {
    const std::vector<TestTensor> base = {f32("w", waves(5000, 0))};
    const Input good = make_update("good", base, Format::kInt4, 1, 0.1).change;
    for (const float scale : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
        TestTensor spoilt = packed(base[0], Format::kInt4, waves(5000, 3));
        std::memcpy(&spoilt.bytes[35 * 68], &scale, sizeof scale);
        spoilt.bytes[35 * 68 + 4] = '\x77';
        for (const StrategySpec& spec : strategies()) {
            if (spec.weighs_rows) continue;
            const RefusedChange refused =
                refusal_of_change(good, change_input("bad", {spoilt}, Format::kInt4), start_of(base), spec);
            expect_invalid(refused.error, "w", {"bad", "NaN or infinity at element 4480"});
            EXPECT_EQ(refused.fault, 1U);
        }
    }
}

TEST(ChangeTest, ABaseThatIsSpoiltIsNoUpdatesFault) {
    std::vector<float> values = waves(300, 0);
    values[200] = std::numeric_limits<float>::infinity();
    const std::vector<TestTensor> base = {f32("w", waves(300, 0))};
    const Both update = make_update("u", base, Format::kInt4, 1, 0.1);
    const RefusedChange refused = refusal_of_change(update.change, update.change, start_of({f32("w", values)}));
    expect_invalid(refused.error, "w", {"base", "element 200"});
    EXPECT_FALSE(refused.fault);
}

TEST(ChangeTest, ALieInTheScalesCountsAsOneInTheWeights) {
    const std::vector<TestTensor> base = {f32("w", waves(5000, 0))};
    std::vector<Input> inputs;
    for (unsigned i = 0; i < 3; ++i) inputs.push_back(make_update("u", base, Format::kInt4, i, 0.1).change);
    inputs.push_back(make_update("liar", base, Format::kInt4, 9, 100).change);
    auto aggregator = Aggregator::plan(parse_strategy(nullptr).value(), inputs, {1, 1, 1, 1}, {}, start_of(base));
    const Prepared prepared = aggregator->prepare(totals_of(*aggregator)).value();
    EXPECT_EQ(prepared.figures[0].counted, 1);
    EXPECT_EQ(prepared.figures[3].counted, 0);
}

TEST(ChangeTest, WhetherAChangeIsFiniteIsKnownWithoutItsBase) {
    const std::vector<TestTensor> base = {f32("w", waves(5000, 0))};
    TestTensor change = packed(base[0], Format::kInt4, waves(5000, 3));
    EXPECT_TRUE(check_finite({change_input("u", {change}, Format::kInt4)}).ok());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(&change.bytes[35 * 68], &nan, sizeof nan);
    expect_invalid(check_finite({change_input("u", {change}, Format::kInt4)}).error(), "w", {"of u", "element 4480"});
    change.bytes.pop_back();
    change.shape = {std::ssize(change.bytes)};
    expect_invalid(check_finite({change_input("u", {change}, Format::kInt4)}).error(), "w", {"whole blocks"});
}

TEST(ChangeTest, DirectoriesOfChangesAreAggregatedAndTheResultIsAModel) {
    const TemporaryDirectory directory;
    const std::vector<TestTensor> base = base_tensors();
    const auto write = [&](const std::string& name, const std::string& file, const std::string& bytes) {
        std::filesystem::create_directory(directory.path() / name);
        EXPECT_TRUE(write_file_atomic(directory.path() / name / file, bytes).ok());
    };
    write("base", "model.safetensors", file_of(base));
    const std::string digest = delta::model_sha256(safetensors::Model::open(directory.path() / "base").value()).value();
    std::vector<Input> inputs;
    for (const std::string name : {"a", "b"}) {
        const auto& changed = make_update(name, base, Format::kInt4, static_cast<unsigned>(name[0]), 0.1).change;
        std::string bytes(changed.files[0].bytes->size(), '\0');
        ASSERT_TRUE(changed.files[0].bytes->read(0, std::as_writable_bytes(std::span(bytes))).ok());
        write(name, delta::kFile, bytes);
        inputs.push_back(open_directory(directory.path() / name).value());
    }
    RoundBase start{.base = open_directory(directory.path() / "base").value(), .digest = digest};
    expect_invalid(Aggregator::plan({}, inputs, {1, 1}, {}, start).error(), delta::kBaseKey);
    start.digest = kBaseName;
    auto aggregator = Aggregator::plan({}, inputs, {1, 1}, {}, start);
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    ASSERT_TRUE(measure_inputs(*aggregator).ok());
    ASSERT_TRUE(write_aggregate(*aggregator, directory.path() / "base", directory.path() / "out").ok());
    EXPECT_EQ(safetensors::Model::open(directory.path() / "out").value().entries().size(), base.size());
    EXPECT_FALSE(std::filesystem::exists(directory.path() / "out" / delta::kFile));
}

}  // namespace
}  // namespace atl::aggregate
