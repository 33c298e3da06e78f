#include "shared/aggregate/aggregator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "shared/aggregate/files.h"
#include "shared/aggregate/testing/memory_models.h"
#include "shared/base/file.h"

namespace atl::aggregate {
namespace {

using safetensors::DType;

Result<std::string> mean_of(std::vector<Input> inputs, std::vector<double> weights = {}) {
    if (weights.empty()) weights.assign(inputs.size(), 1.0);
    ATOLL_TRY(const Aggregator aggregator, Aggregator::plan({}, std::move(inputs), weights));
    return whole_file(aggregator, 0);
}

std::optional<Error> error_of(std::vector<Input> inputs, std::vector<double> weights = {}) {
    const auto result = mean_of(std::move(inputs), std::move(weights));
    return result.ok() ? std::nullopt : std::optional(result.error());
}

TEST(AggregatorTest, WeightsAreRelative) {
    const auto mean =
        mean_of({input_of("a", {{f32("w", {0, 4, -8})}}), input_of("b", {{f32("w", {4, 8, 8})}})}, {3, 1});
    ASSERT_TRUE(mean.ok()) << mean.error().message;
    EXPECT_EQ(*mean, file_of({f32("w", {1, 5, -4})}));
}

TEST(AggregatorTest, AnotherOrderAndShardingOfTheTensorsGivesTheFirstInputsLayout) {
    const auto mean = mean_of({input_of("a", {{f32("x", {1, 1}), f32("y", {2}), f32("z", {3})}}),
                               input_of("b", {{f32("z", {5})}, {f32("y", {6}), f32("x", {3, 7})}})});
    ASSERT_TRUE(mean.ok()) << mean.error().message;
    EXPECT_EQ(*mean, file_of({f32("x", {2, 4}), f32("y", {4}), f32("z", {4})}));
}

TEST(AggregatorTest, FilesHeadersAndTypesAreTheBasesWhateverTheInputsHave) {
    const std::string base = file_of({f16("x", {0, 0}), f16("y", {0})}, {{"made_by", "base"}});
    const auto input = [](const std::string& path, const std::vector<TestTensor>& tensors) {
        const std::string bytes = file_of(tensors, {{"made_by", path}, {"foreign", std::string(1000, 'x')}});
        return Input{path, {{path + ".safetensors", std::make_shared<MemoryFile>(bytes)}}};
    };
    const auto aggregator = Aggregator::plan(
        {}, {input("renamed", {f32("y", {6}), f32("x", {1, 1})}), input("other", {f16("x", {3, 7}), f16("y", {2})})},
        {1, 1}, {}, RoundBase{{"base", {{"model.safetensors", std::make_shared<MemoryFile>(base)}}}});
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    ASSERT_EQ(aggregator->files().size(), 1U);
    EXPECT_EQ(aggregator->files()[0].path, "model.safetensors");
    EXPECT_EQ(whole_file(*aggregator, 0).value(), file_of({f16("x", {2, 4}), f16("y", {4})}, {{"made_by", "base"}}));
}

TEST(AggregatorTest, AMeanThatIsTooLargeForTheBasesTypeIsRefused) {
    const Input large = input_of("large", {{f32("w", {1e30F})}});
    const auto aggregator = Aggregator::plan({}, {large}, {1}, {}, RoundBase{input_of("base", {{f16("w", {1})}})});
    ASSERT_TRUE(aggregator.ok());
    expect_invalid(whole_file(*aggregator, 0).error(), "w", {"mean", "F16"});
}

TEST(AggregatorTest, EqualIntegersAreCopiedAndDifferentOnesRefused) {
    const auto mean = mean_of(
        {input_of("a", {{i64("ids", {1, 2}), f32("w", {1})}}), input_of("b", {{i64("ids", {1, 2}), f32("w", {3})}})});
    ASSERT_TRUE(mean.ok()) << mean.error().message;
    EXPECT_EQ(*mean, file_of({i64("ids", {1, 2}), f32("w", {2})}));
    expect_invalid(
        error_of({input_of("karolina", {{i64("ids", {1, 2})}}), input_of("leonardo", {{i64("ids", {1, 3})}})}), "ids",
        {"I64", "karolina", "leonardo"});
}

TEST(AggregatorTest, InputsThatDoNotMatchAreRefusedByTensorAndInput) {
    const Input a = input_of("karolina", {{f32("w", {1, 2})}});
    expect_invalid(error_of({a, input_of("leonardo", {{f32("v", {1, 2})}})}), "w", {"karolina", "leonardo"});
    expect_invalid(error_of({a, input_of("leonardo", {{f32("w", {1, 2}), f32("v", {1})}})}), "v",
                   {"karolina", "leonardo"});
    expect_invalid(error_of({a, input_of("leonardo", {{f32("w", {1, 2, 3})}})}), "w", {"F32[2]", "F32[3]", "leonardo"});
    expect_invalid(error_of({a, input_of("leonardo", {{f16("w", {1, 2})}})}), "w", {"F32[2]", "F16[2]", "leonardo"});
    expect_invalid(error_of({a, input_of("leonardo", {{f32("w", {1, 2})}, {f32("w", {1, 2})}})}), "w", {"leonardo"});
    expect_invalid(error_of({a, input_of("leonardo", {})}), "leonardo");
}

TEST(AggregatorTest, AdaptersOfTwoBasesAreRefusedByName) {
    const Input a = adapter_on("karolina", {{"atoll.base_sha256", "0a"}, {"atoll.base_quantization", "nf4"}});
    const Input b = adapter_on("leonardo", {{"atoll.base_sha256", "0b"}, {"atoll.base_quantization", "nf4"}});
    const Input c = adapter_on("meluxina", {{"atoll.base_sha256", "0a"}, {"atoll.base_quantization", "int8"}});
    const Input silent = adapter_on("silent", {});
    expect_invalid(error_of({a, b}), "atoll.base_sha256", {"leonardo", "\"0b\"", "karolina", "\"0a\""});
    expect_invalid(error_of({silent, a, c}), "atoll.base_quantization",
                   {"meluxina", "\"int8\"", "karolina", "\"nf4\""});
    EXPECT_TRUE(error_of({b, a, a})->message.starts_with("leonardo")) << "the odd one";
    EXPECT_FALSE(error_of({a, silent, a}));
}

TEST(AggregatorTest, AFileThatIsNotSafetensorsIsNamed) {
    Input broken{"b", {{"w.safetensors", std::make_shared<MemoryFile>(std::string(40, '\xff'))}}};
    expect_invalid(error_of({input_of("a", {{f32("w", {1})}}), broken}), "w.safetensors", {"b/w.safetensors"});
}

TEST(AggregatorTest, FloatsThatAreTooSmallToAverageAreRefused) {
    const TestTensor f8{"w", DType::kF8E4M3, {2}, "ab"};
    expect_invalid(error_of({input_of("a", {{f8}})}), "w", {"F8_E4M3"});
}

TEST(AggregatorTest, WeightsThatMeanNothingAreRefused) {
    const Input a = input_of("a", {{f32("w", {1})}});
    for (const std::vector<double>& weights :
         {std::vector<double>{1.0}, {1, 1, 1}, {-1, 2}, {0, 0}, {NAN, 1}, {INFINITY, 1}})
        expect_invalid(error_of({a, a}, weights), "weights");
    EXPECT_TRUE(mean_of({a, a}, {0, 2}).ok());
}

TEST(AggregatorTest, AStrategyThatIsNotKnownIsRefusedByName) {
    StrategySpec strategy;
    strategy.name = "krum";
    const auto aggregator = Aggregator::plan(strategy, {input_of("a", {{f32("w", {1})}})}, {1});
    ASSERT_FALSE(aggregator.ok());
    EXPECT_EQ(aggregator.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(aggregator.error().field, "strategy.name");
}

TEST(AggregatorTest, NaNAndInfinityAreRefusedByTensorInputAndElement) {
    const Input good = input_of("good", {{f32("v", {1}), f32("w", {1, 2, 3})}});
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        const Input spoilt = input_of("spoilt", {{f32("v", {1}), f32("w", {1, 2, bad})}});
        expect_invalid(error_of({good, spoilt}), "w", {"of spoilt", "element 2"});
        EXPECT_TRUE(error_of({good, spoilt}, {1, 0})) << "a weight of zero must not hide it";
    }
    TestTensor half = f16("w", {1, 2});
    half.bytes[1] = '\x7c';  // infinity
    expect_invalid(error_of({input_of("a", {{half}})}), "w", {"of a", "element 0"});
}

TEST(AggregatorTest, EveryFloatTypeKeepsItsTypeAndRoundsToNearest) {
    // (1 + (1 + ulp)) / 2 lies between two neighbours: the even one, 1, wins.
    EXPECT_EQ(mean_of({input_of("a", {{f16("w", {1})}}), input_of("b", {{f16("w", {1 + 0x1p-10F})}})}).value(),
              file_of({f16("w", {1})}));
    const auto bf16 = [](std::uint16_t bits) {
        return TestTensor{"w", DType::kBF16, {1}, bytes_of(std::vector<std::uint16_t>{bits})};
    };
    EXPECT_EQ(mean_of({input_of("a", {{bf16(0x3f80)}}), input_of("b", {{bf16(0x3f81)}})}).value(),
              file_of({bf16(0x3f80)}));
    EXPECT_EQ(mean_of({input_of("a", {{bf16(0x3f81)}}), input_of("b", {{bf16(0x3f82)}})}).value(),
              file_of({bf16(0x3f82)}));
    const auto f64 = [](double value) {
        return TestTensor{"w", DType::kF64, {1}, bytes_of(std::vector<double>{value})};
    };
    EXPECT_EQ(mean_of({input_of("a", {{f64(1)}}), input_of("b", {{f64(1 + 0x1p-40)}})}).value(),
              file_of({f64(1 + 0x1p-41)}));
}

TEST(AggregatorTest, TheMeanOfOneModelIsThatModel) {
    const Input a = input_of("a", {{f16("w", {-0.0F, 1, -2, 65504, 6e-8F}), f32("v", {-0.0F, 3.4e38F, 1e-45F})}});
    EXPECT_EQ(mean_of({a}).value(),
              file_of({f16("w", {-0.0F, 1, -2, 65504, 6e-8F}), f32("v", {-0.0F, 3.4e38F, 1e-45F})}));
}

// Models with tensors of all kinds and odd sizes, whose data begins at an odd offset of the file.
std::vector<Input> odd_inputs(int count) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<Input> inputs;
    for (int i = 0; i < count; ++i) {
        std::vector<float> values(1237);
        for (float& value : values) value = normal(random);
        std::string bytes =
            file_of({f16("half", values), TestTensor{"flag", DType::kBool, {3}, std::string("\0\1\1", 3)},
                     f32("empty", {}), f32("single", values), f16("last", {values[0]})});
        // One more space in the header moves the data by one byte.
        std::uint64_t length;
        std::memcpy(&length, bytes.data(), sizeof length);
        bytes.insert(8 + length, " ");
        ++length;
        std::memcpy(bytes.data(), &length, sizeof length);
        inputs.push_back({"input" + std::to_string(i), {{"m.safetensors", std::make_shared<MemoryFile>(bytes)}}});
    }
    return inputs;
}

TEST(AggregatorTest, BlocksCutsAndThreadsDoNotChangeTheBits) {
    const std::vector<double> weights = {0.2, 3, 1};
    const auto reference_plan = Aggregator::plan({}, odd_inputs(3), weights, {1U << 20});
    ASSERT_TRUE(reference_plan.ok()) << reference_plan.error().message;
    const std::string reference = whole_file(*reference_plan, 0).value();
    for (const std::size_t block : {8U, 10U, 64U, 1000U}) {
        const auto aggregator = Aggregator::plan({}, odd_inputs(3), weights, {block});
        ASSERT_TRUE(aggregator.ok());
        for (const std::size_t cut : {1U, 3U, 500U, 4096U}) {
            std::string bytes(reference.size(), '\0');
            std::atomic<std::size_t> next = 0;
            const auto work = [&] {
                Aggregator::Workspace workspace(*aggregator);
                for (std::size_t at = next.fetch_add(cut); at < bytes.size(); at = next.fetch_add(cut)) {
                    const auto part =
                        std::as_writable_bytes(std::span(bytes)).subspan(at, std::min(cut, bytes.size() - at));
                    EXPECT_TRUE(aggregator->read(0, at, part, workspace).ok());
                }
            };
            std::jthread other(work);
            work();
            other.join();
            EXPECT_EQ(bytes, reference) << "block " << block << " cut " << cut;
        }
    }
}

TEST(AggregatorTest, NoReadIsLargerThanABlock) {
    std::vector<Input> inputs = odd_inputs(2);
    const auto files = std::vector{inputs[0].files[0].bytes, inputs[1].files[0].bytes};
    const auto aggregator = Aggregator::plan({}, std::move(inputs), {1, 1}, {600});
    ASSERT_TRUE(aggregator.ok() && whole_file(*aggregator, 0).ok());
    for (const auto& file : files)
        EXPECT_LE(dynamic_cast<const MemoryFile&>(*file).largest_read(), 600U) << "the header is smaller too";
}

TEST(AggregatorTest, TheMeanIsCloseToTheExactOne) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<double> exact(5000, 0.0);
    std::vector<Input> inputs;
    const std::vector<double> weights = {5, 1, 2, 8, 4};
    for (const double weight : weights) {
        std::vector<float> values(exact.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = normal(random);
            exact[i] += weight / 20 * static_cast<double>(values[i]);
        }
        inputs.push_back(input_of("x", {{f32("w", values)}}));
    }
    const std::string bytes = mean_of(std::move(inputs), weights).value();
    for (std::size_t i = 0; i < exact.size(); ++i) {
        float mean;
        std::memcpy(&mean, bytes.data() + bytes.size() - 4 * (exact.size() - i), sizeof mean);
        ASSERT_NEAR(mean, exact[i], 1e-6) << i;
    }
}

void write_model(const std::filesystem::path& directory, const std::map<std::string, std::string>& files) {
    for (const auto& [name, bytes] : files) {
        std::filesystem::create_directories((directory / name).parent_path());
        ASSERT_TRUE(write_file_atomic(directory / name, bytes).ok());
    }
}

TEST(AggregatorFilesTest, ADirectoryComesOutWithTheFirstInputsOtherFiles) {
    const TemporaryDirectory temporary;
    const auto root = temporary.path();
    write_model(root / "a", {{"model.safetensors", file_of({f32("w", {1, 3})})},
                             {"config.json", "{}"},
                             {"original/params.json", "first"},
                             {".cache/lock", "x"}});
    write_model(root / "b", {{"model.safetensors", file_of({f32("w", {3, 5})})}, {"config.json", "{\"other\":1}"}});
    std::vector<Input> inputs = {open_directory(root / "a").value(), open_directory(root / "b").value()};
    const auto aggregator = Aggregator::plan({}, std::move(inputs), {1, 1});
    ASSERT_TRUE(aggregator.ok());
    ASSERT_TRUE(write_aggregate(*aggregator, root / "a", root / "out" / "mean").ok());
    EXPECT_EQ(read_file(root / "out/mean/model.safetensors").value(), file_of({f32("w", {2, 4})}));
    EXPECT_EQ(read_file(root / "out/mean/config.json").value(), "{}");
    EXPECT_EQ(read_file(root / "out/mean/original/params.json").value(), "first");
    EXPECT_FALSE(std::filesystem::exists(root / "out/mean/.cache"));
    EXPECT_EQ(write_aggregate(*aggregator, root / "a", root / "out" / "mean").error().code, ErrorCode::kConflict);
}

TEST(AggregatorFilesTest, AFailureLeavesNoDirectory) {
    const TemporaryDirectory temporary;
    write_model(temporary.path() / "a", {{"model.safetensors", file_of({f32("w", {1, NAN})})}});
    std::vector<Input> inputs = {open_directory(temporary.path() / "a").value()};
    const auto aggregator = Aggregator::plan({}, std::move(inputs), {1});
    ASSERT_TRUE(aggregator.ok());
    EXPECT_EQ(write_aggregate(*aggregator, temporary.path() / "a", temporary.path() / "out").error().field, "w");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary.path()), {}), 1);
}

TEST(AggregatorFilesTest, AnIndexMustNameTheFilesThatAreThere) {
    const TemporaryDirectory temporary;
    const auto a = temporary.path() / "a";
    write_model(a, {{"x.safetensors", file_of({f32("w", {1})})},
                    {"model.safetensors.index.json", R"({"weight_map":{"w":"x.safetensors","v":"y.safetensors"}})"}});
    EXPECT_EQ(open_directory(a).error().field, "y.safetensors");
    write_model(a, {{"model.safetensors.index.json", R"({"weight_map":{"w":"x.safetensors"}})"}});
    EXPECT_TRUE(open_directory(a).ok());
    write_model(a, {{"stray.safetensors", file_of({f32("s", {1})})}});
    EXPECT_EQ(open_directory(a).error().field, "stray.safetensors");
}

TEST(AggregatorFilesTest, AFileThatShrinksIsAnErrorThatNamesIt) {
    const TemporaryDirectory temporary;
    write_model(temporary.path() / "a", {{"model.safetensors", file_of({f32("w", {1, 2, 3, 4})})}});
    std::vector<Input> inputs = {open_directory(temporary.path() / "a").value()};
    const auto aggregator = Aggregator::plan({}, std::move(inputs), {1});
    ASSERT_TRUE(aggregator.ok());
    std::filesystem::resize_file(temporary.path() / "a/model.safetensors", aggregator->files()[0].size - 4);
    const auto bytes = whole_file(*aggregator, 0);
    ASSERT_FALSE(bytes.ok());
    EXPECT_NE(bytes.error().message.find("model.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace atl::aggregate
