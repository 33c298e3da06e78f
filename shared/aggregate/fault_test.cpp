#include <cmath>
#include <optional>

#include "shared/aggregate/testing/memory_models.h"

namespace atl::aggregate {
namespace {

// Which input is blamed for an aggregator, made as far as it goes; none: it succeeds or no input is at fault.
std::optional<std::size_t> blamed(std::vector<Input> inputs, std::optional<RoundBase> start,
                                  const StrategySpec& strategy = {}) {
    std::optional<std::size_t> input;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t at) { input = at; };
    const std::vector<double> weights(inputs.size(), 1.0);
    const auto aggregator = Aggregator::plan(strategy, std::move(inputs), weights, options, std::move(start));
    for (std::size_t i = 0; aggregator.ok() && i < aggregator->files().size(); ++i)
        if (!whole_file(*aggregator, i).ok()) break;
    return input;
}

// Three of the same, of which one may be another.
std::vector<Input> three(std::size_t odd, const std::vector<TestTensor>& other,
                         const std::vector<TestTensor>& usual = {f32("w", {1, 2})}) {
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < 3; ++i) inputs.push_back(input_of("i" + std::to_string(i), {i == odd ? other : usual}));
    return inputs;
}

RoundBase from(const std::vector<TestTensor>& base) {
    return {input_of("base", {base}), {}};
}

const RoundBase kStart = from({f32("w", {1, 2})});

TEST(FaultTest, GoodInputsHaveNone) {
    EXPECT_FALSE(blamed(three(1, {f32("w", {5, 5})}), kStart));
}

TEST(FaultTest, TheInputWithNanIsNamedWhereverItStands) {
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(blamed(three(i, {f32("w", {1, NAN})}), kStart), i);
        EXPECT_EQ(blamed(three(i, {f32("w", {INFINITY, 1})}), std::nullopt), i);
    }
}

TEST(FaultTest, TheInputWhoseHugeNumbersMakeTheStepOverflowIsNamed) {
    StrategySpec nesterov;
    nesterov.server_optimizer = ServerOptimizer{.learning_rate = 5};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(blamed(three(i, {f32("w", {1, 3e38F})}), kStart, nesterov), i);
        EXPECT_FALSE(blamed(three(i, {f32("w", {1, 3e38F})}, {f32("w", {1, 3e38F})}), kStart, nesterov));
    }
}

TEST(FaultTest, TheInputWhoseTensorsAreNotTheBasesIsNamedAlsoWhenItComesFirst) {
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(blamed(three(i, {f32("w", {1, 2, 3})}), kStart), i);
        EXPECT_EQ(blamed(three(i, {f32("v", {1, 2})}), kStart), i);
        EXPECT_EQ(blamed(three(i, {f32("w", {1, 2}), f32("more", {1})}), kStart), i);
    }
}

TEST(FaultTest, TheAdapterOfAnotherBaseThanTheOthersIsNamed) {
    for (std::size_t odd = 0; odd < 3; ++odd) {
        std::vector<Input> inputs(3, adapter_on("usual", {{"atoll.base_sha256", "0a"}}));
        inputs[odd] = adapter_on("odd", {{"atoll.base_sha256", "0b"}});
        EXPECT_EQ(blamed(inputs, std::nullopt), odd);
    }
}

// A lie that no number depends on must not have an honest site refused.
TEST(FaultTest, OfARoundsAdaptersNobodyIsAtFaultWhereTheBaseIsSilentAndAsManySayOneAsTheOther) {
    const auto on = [](const std::string& base) { return adapter_on("u", {{"atoll.base_sha256", base}}); };
    for (const auto& inputs : {std::vector{on("0a"), on("0b")}, std::vector{on("0b"), on("0a")}})
        EXPECT_FALSE(blamed(inputs, RoundBase{adapter_on("base", {})}));
    for (std::size_t odd = 0; odd < 3; ++odd) {
        std::vector<Input> inputs(3, on("0a"));
        inputs[odd] = on("0b");
        EXPECT_EQ(blamed(inputs, RoundBase{adapter_on("base", {})}), odd);
    }
    for (std::size_t honest = 0; honest < 3; ++honest) {
        std::vector<Input> inputs(3, on("0b"));
        inputs[honest] = on("0a");
        EXPECT_EQ(blamed(inputs, RoundBase{on("0a")}), honest == 0 ? 1U : 0U) << "the base knows";
    }
    RoundBase brought{on("a lie")};
    brought.is_jobs = false;
    EXPECT_FALSE(blamed(std::vector<Input>(3, on("0a")), brought)) << "somebody has made it";
}

TEST(FaultTest, TheInputWhoseTypeIsNotTheBasesNorWidensToFp32IsNamed) {
    const TestTensor wide{"w", DType::kF64, {2}, bytes_of(std::vector<double>{1, 2})};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_FALSE(blamed(three(i, {f16("w", {1, 2})}), kStart));
        EXPECT_EQ(blamed(three(i, {wide}), kStart), i);
        EXPECT_EQ(blamed(three(i, {i64("w", {1, 2})}), kStart), i);
    }
}

TEST(FaultTest, AnotherFileLayoutIsNone) {
    std::vector<Input> inputs = three(3, {}, {f32("v", {3}), f32("w", {1, 2})});
    inputs[0] = input_of("split", {{f32("w", {1, 2})}, {f32("v", {3})}});
    EXPECT_FALSE(blamed(std::move(inputs), from({f32("v", {3}), f32("w", {1, 2})})));
}

TEST(FaultTest, TheInputThatChangedAnIntegerIsNamed) {
    const std::vector<TestTensor> good = {i64("n", {4}), f32("w", {1, 2})};
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(blamed(three(i, {i64("n", {5}), f32("w", {1, 2})}, good), from(good)), i);
}

TEST(FaultTest, ABrokenHeaderIsItsInputsFaultAndABrokenBaseNobodys) {
    auto inputs = three(3, {});
    inputs[1].files[0].bytes = std::make_shared<MemoryFile>("not a safetensors file");
    EXPECT_EQ(blamed(inputs, kStart), 1U);
    RoundBase broken = kStart;
    broken.base.files[0].bytes = std::make_shared<MemoryFile>("not a safetensors file");
    EXPECT_FALSE(blamed(three(3, {}), broken));
}

}  // namespace
}  // namespace atl::aggregate
