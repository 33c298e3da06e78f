#include <malloc.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shared/aggregate/testing/adapters.h"
#include "shared/base/file.h"
#include "shared/base/testing/sanitizers.h"

namespace atl::aggregate {
namespace {

StrategySpec product() {
    StrategySpec strategy;
    strategy.name = "product";
    return strategy;
}

struct Made {
    Adapter adapter;
    double error = 0;  // relative
};

Made make(const std::vector<Adapter>& adapters, const std::vector<double>& weights) {
    const auto aggregator = Aggregator::plan(product(), inputs_of(adapters), weights);
    EXPECT_TRUE(aggregator.ok()) << aggregator.error().message;
    Aggregator::Workspace workspace(*aggregator);
    std::string bytes(aggregator->files()[0].size, '\0');
    EXPECT_TRUE(aggregator->read(0, 0, std::as_writable_bytes(std::span(bytes)), workspace).ok());
    return {adapter_in(bytes, adapters[0]), workspace.take_truncation().relative_error()};
}

// Sites as tests/numerics/make_product_goldens.py has them.
TEST(ProductTest, ItIsWhatTorchMakesOfTheMeanOfTheProducts) {
    const auto text = read_file(std::string(ATOLL_GOLDEN_DIR) + "/product/product.json");
    ASSERT_TRUE(text.ok()) << text.error().message;
    for (const auto& golden : nlohmann::json::parse(*text)) {
        const std::size_t out = golden.at("out"), in = golden.at("in");
        std::vector<Adapter> adapters;
        for (std::size_t s = 0; s < golden.at("sites").size(); ++s) {
            const auto& site = golden.at("sites")[s];
            Adapter made = random_adapter(out, in, site.at("rank"), 0);
            const double of_a = golden.contains("one_a") ? 0 : static_cast<double>(s);
            for (std::size_t x = 0; x < made.a.size(); ++x)
                made.a[x] = static_cast<float>(std::sin(0.1 * static_cast<double>(x * x) + of_a));
            for (std::size_t y = 0; y < made.b.size(); ++y)
                made.b[y] =
                    static_cast<float>(std::cos(0.07 * static_cast<double>(y * y) + 2.0 * static_cast<double>(s)));
            made.scale = {site.at("alpha"), site.at("rslora")};
            adapters.push_back(made);
        }
        // A base with the rank and alpha that the result is to have.
        Adapter base = random_adapter(out, in, golden.at("rank"), 1);
        base.scale = {3, true};
        auto aggregator = Aggregator::plan(product(), inputs_of(adapters), golden.at("weights"), {},
                                           RoundBase{adapter_input("base", base)});
        ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
        Aggregator::Workspace workspace(*aggregator);
        std::string bytes(aggregator->files()[0].size, '\0');
        ASSERT_TRUE(aggregator->read(0, 0, std::as_writable_bytes(std::span(bytes)), workspace).ok());
        const double error = workspace.take_truncation().relative_error();
        EXPECT_NEAR(error, golden.at("error"), 1e-7) << golden;
        if (golden.at("error") < 1e-12) {
            EXPECT_LT(error, 1e-14) << golden;
        }
        const Dense made = product_of(adapter_in(bytes, base));
        for (int p = 0; p < 3; ++p) {
            double probe = 0;
            for (std::size_t o = 0; o < out; ++o)
                for (std::size_t c = 0; c < in; ++c)
                    probe += std::sin(static_cast<double>(o) + p) * made[o * in + c] *
                             std::cos(static_cast<double>(c) * p + 1);
            EXPECT_NEAR(probe, golden.at("probes")[p],
                        2e-6 * golden.at("norm").get<double>() * std::sqrt(static_cast<double>(out * in)))
                << golden;
        }
    }
}

TEST(ProductTest, NothingIsLostWhereTheRankIsEnough) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        const std::size_t out = 5 + seed % 7 * 31, in = 6 + seed % 5 * 17, rank = 1 + seed % 4;
        std::vector<Adapter> adapters;
        for (unsigned site = 0; site < 4; ++site) {
            adapters.push_back(random_adapter(out, in, rank, 10 * seed + site));
            adapters.back().a = adapters.front().a;  // as where A is frozen
            adapters.back().scale = {1.0 + site, site == 2};
        }
        const Made made = make(adapters, {1, 2, 0, 1});
        Dense mean(out * in);
        add_product(mean, 0.25, adapters[0]);
        add_product(mean, 0.5, adapters[1]);
        add_product(mean, 0.25, adapters[3]);
        EXPECT_LT(norm_between(product_of(made.adapter), mean), 1e-6 * norm(mean)) << seed;
        EXPECT_LT(made.error, 1e-14) << seed;
    }
}

TEST(ProductTest, ItsErrorIsTheDistanceToTheMeanOfTheProducts) {
    for (unsigned seed = 0; seed < 30; ++seed) {
        const std::size_t out = 4 + seed % 11 * 13, in = 5 + seed % 7 * 19, count = 2 + seed % 4;
        std::vector<Adapter> adapters;
        Dense mean(out * in);
        for (unsigned site = 0; site < count; ++site) {
            adapters.push_back(random_adapter(out, in, 1 + (seed + site) % 5, 100 * seed + site));
            adapters.back().scale = {1.0 + (seed + site) % 3, site % 2 == 1};
            add_product(mean, 1.0 / static_cast<double>(count), adapters.back());
        }
        const Made made = make(adapters, std::vector<double>(count, 1.0));
        EXPECT_NEAR(norm_between(product_of(made.adapter), mean) / norm(mean), made.error, 2e-6) << seed;
    }
}

TEST(ProductTest, BytesAndErrorDoNotDependOnHowTheOutputIsCut) {
    const std::vector<Adapter> adapters = {random_adapter(60, 45, 4, 1), random_adapter(60, 45, 3, 2)};
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < adapters.size(); ++i) {
        std::vector<TestTensor> tensors = tensors_of(adapters[i]);
        for (const char* other : {"m.v_proj", "m.up_proj"})
            for (TestTensor tensor : tensors_of(random_adapter(33, 70, adapters[i].rank, 7 + i))) {
                tensor.name.replace(0, std::string("m.q_proj").size(), other);
                tensors.push_back(tensor);
            }
        std::vector<std::vector<TestTensor>> files = {tensors};
        if (i == 1) files = {{tensors[1], tensors[2]}, {tensors[0], tensors[3], tensors[4], tensors[5]}};
        inputs.push_back(input_of("update", files));
    }
    const auto aggregator = Aggregator::plan(product(), inputs, {1, 1}, {.block_bytes = 100}).value();
    const std::string whole = whole_file(aggregator, 0).value();
    double error = 0;
    for (const std::size_t cut : {1UL << 20, 1000UL, 97UL, 7UL}) {
        std::string bytes(whole.size(), '\0');
        Truncation lost;
        for (std::size_t at = 0; at < bytes.size(); at += cut) {
            Aggregator::Workspace workspace(aggregator);
            const auto part = std::as_writable_bytes(std::span(bytes)).subspan(at, std::min(cut, bytes.size() - at));
            ASSERT_TRUE(aggregator.read(0, at, part, workspace).ok());
            const Truncation one = workspace.take_truncation();
            lost.left_out.add(one.left_out);
            lost.whole.add(one.whole);
        }
        EXPECT_TRUE(bytes == whole) << cut;
        if (error == 0) error = lost.relative_error();
        EXPECT_EQ(lost.relative_error(), error) << cut;
    }
    EXPECT_GT(error, 0.01);
    const auto again = Aggregator::plan(product(), inputs, {1, 1}, {.block_bytes = 1 << 20}).value();
    EXPECT_TRUE(whole_file(again, 0).value() == whole);
}

Prepared prepare(Aggregator& aggregator, std::size_t part = 1 << 20, const std::vector<Assignment>& assigned = {}) {
    return aggregator.prepare(totals_of(aggregator, part), assigned).value();
}

TEST(ProductTest, ChangesAreThoseOfWhatIsAddedToTheModel) {
    Adapter base = random_adapter(30, 20, 3, 1);
    base.scale = {6, false};
    std::vector<Adapter> adapters = {random_adapter(30, 20, 3, 2), random_adapter(30, 20, 2, 3), base};
    adapters[1].scale = {5, true};
    for (float& value : adapters[2].a) value *= 2;  // another way to write the same adapter
    for (float& value : adapters[2].b) value /= 2;
    auto aggregator =
        Aggregator::plan(product(), inputs_of(adapters), {1, 1, 1}, {}, RoundBase{adapter_input("base", base)}).value();
    const Prepared prepared = prepare(aggregator);
    const Dense from = product_of(base), first = product_of(adapters[0]), second = product_of(adapters[1]);
    EXPECT_NEAR(prepared.figures[0].norm, norm_between(first, from), 1e-6);
    EXPECT_NEAR(prepared.figures[1].norm, norm_between(second, from), 1e-6);
    EXPECT_NEAR(prepared.figures[2].norm, 0, 1e-5);
    double both = 0;
    for (std::size_t i = 0; i < from.size(); ++i) both += (first[i] - from[i]) * (second[i] - from[i]);
    EXPECT_NEAR(prepared.figures[0].cosine.value(), both / norm_between(first, from) / norm_between(second, from),
                1e-6);
    const Prepared again = prepare(aggregator, 13);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(again.figures[i].norm, prepared.figures[i].norm);
}

// What an honest training makes of an adapter [30, 20] of rank 4.
Adapter near_to(const Adapter& base, unsigned seed) {
    Adapter adapter = base;
    const Adapter noise = random_adapter(30, 20, 4, seed);
    for (std::size_t i = 0; i < adapter.b.size(); ++i) adapter.b[i] += 0.01F * noise.b[i];
    return adapter;
}

StrategySpec defended_product() {
    StrategySpec strategy = product();
    strategy.clip = 1.4;
    strategy.drop = 3;
    return strategy;
}

// It says that its adapter has a thousand times the alpha, or sends a thousand times the numbers: both are the same.
TEST(ProductTest, WhoLiesInAlphaOrRankOrSizeCountsAsWhoLiesInItsWeights) {
    const Adapter base = random_adapter(30, 20, 4, 1);
    const auto near = [&](unsigned seed) { return near_to(base, seed); };
    const std::vector<Adapter> honest = {near(2), near(3)};
    Adapter by_alpha = near(4), by_size = near(4), by_rank = random_adapter(30, 20, 64, 5);
    by_alpha.scale.alpha *= 1000;
    for (float& value : by_size.b) value *= 1000;
    const StrategySpec strategy = defended_product();
    Dense expected(600);  // of three, one counts as no change
    add_product(expected, 1.0 / 3, honest[0]);
    add_product(expected, 1.0 / 3, honest[1]);
    add_product(expected, 1.0 / 3, base);
    for (const Adapter& liar : {by_alpha, by_size, by_rank}) {
        auto aggregator = Aggregator::plan(strategy, inputs_of({honest[0], honest[1], liar}), {1, 1, 1}, {},
                                           RoundBase{adapter_input("base", base)})
                              .value();
        const Prepared prepared = prepare(aggregator);
        EXPECT_EQ(prepared.figures[2].counted, 0);
        EXPECT_EQ(prepared.figures[0].counted, 1);
        const Adapter made = adapter_in(whole_file(aggregator, 0).value(), base);
        EXPECT_LT(norm_between(product_of(made), expected), 1e-5 * norm(expected));
    }
    // Of two, what its optimizer can do bounds it.
    auto two =
        Aggregator::plan(strategy, inputs_of({honest[0], by_size}), {1, 1}, {}, RoundBase{adapter_input("base", base)})
            .value();
    const Assignment assigned{.element_max = 0.01};
    const Prepared bounded = prepare(two, 1 << 20, {assigned, assigned});
    EXPECT_EQ(bounded.figures[0].counted, 1);
    EXPECT_EQ(bounded.figures[1].counted, 0);
}

// Its product is small and its matrices are not: what rounding would leave of them is its change.
TEST(ProductTest, WhoseMatricesCancelOneAnotherCountsAsNoChange) {
    const Adapter base = random_adapter(30, 20, 4, 1);
    const auto near = [&](unsigned seed) { return near_to(base, seed); };
    const StrategySpec strategy = defended_product();
    for (const float size : {1e5F, 1e8F, 3e38F}) {
        Adapter liar = near(4);
        for (std::size_t row = 0; row < 2; ++row)  // of A; the same columns of B are opposite
            for (std::size_t i = 0; i < liar.in; ++i) liar.a[row * liar.in + i] = size;
        for (std::size_t i = 0; i < liar.out; ++i) {
            liar.b[i * liar.rank] = size;
            liar.b[i * liar.rank + 1] = -size;
        }
        auto aggregator = Aggregator::plan(strategy, inputs_of({near(2), near(3), liar}), {1, 1, 1}, {},
                                           RoundBase{adapter_input("base", base)})
                              .value();
        const Prepared prepared = prepare(aggregator);
        EXPECT_EQ(prepared.figures[2].counted, 0) << size << ": " << prepared.figures[2].norm;
        EXPECT_EQ(prepared.figures[0].counted, 1);
        EXPECT_EQ(prepared.figures[1].counted, 1);
    }
}

TEST(ProductTest, WhereNothingIsAddedTheAdapterCanStillBeTrained) {
    Adapter base = random_adapter(12, 9, 3, 1), other = random_adapter(12, 9, 3, 2);
    std::fill(base.b.begin(), base.b.end(), 0.0F);
    std::fill(other.b.begin(), other.b.end(), 0.0F);
    for (std::size_t o = 0; o < 12; ++o) other.b[o * 3] = 1;  // rank one
    const auto aggregator =
        Aggregator::plan(product(), inputs_of({base, other}), {1, 1}, {}, RoundBase{adapter_input("base", base)})
            .value();
    const Adapter made = adapter_in(whole_file(aggregator, 0).value(), base);
    Dense expected(108);
    add_product(expected, 0.5, other);
    EXPECT_LT(norm_between(product_of(made), expected), 1e-6 * norm(expected));
    for (std::size_t at = 9; at < 27; ++at) EXPECT_EQ(made.a[at], base.a[at]) << at;
    for (std::size_t o = 0; o < 12; ++o)
        for (const std::size_t k : {1U, 2U}) EXPECT_EQ(made.b[o * 3 + k], 0);
}

struct Refused {
    std::optional<Error> error;
    std::optional<std::size_t> fault;
};

Refused refusal_of(std::vector<Input> inputs, std::optional<RoundBase> start = {}) {
    Refused refused;
    AggregatorOptions options;
    options.on_fault = [&](std::size_t input) { refused.fault = input; };
    const std::vector<double> weights(inputs.size(), 1.0);
    const auto aggregator = Aggregator::plan(product(), std::move(inputs), weights, options, std::move(start));
    if (!aggregator.ok()) {
        refused.error = aggregator.error();
        return refused;
    }
    const auto bytes = whole_file(*aggregator, 0);
    if (!bytes.ok()) refused.error = bytes.error();
    return refused;
}

TEST(ProductTest, WhatDoesNotFitIsRefusedByName) {
    const Adapter good = random_adapter(6, 5, 2, 1);
    const auto with = [&](const std::vector<TestTensor>& tensors) {
        return refusal_of({adapter_input("good", good), input_of("bad", {tensors})});
    };
    const std::vector<TestTensor> fine = tensors_of(good);
    Adapter spoilt = good;
    spoilt.b[7] = std::numeric_limits<float>::quiet_NaN();
    const Refused nan = with(tensors_of(spoilt));
    expect_invalid(nan.error, kB, {"bad", "NaN or infinity at element 7"});
    EXPECT_EQ(nan.fault, 1U);
    spoilt = good;
    spoilt.a[3] = std::numeric_limits<float>::infinity();
    expect_invalid(with(tensors_of(spoilt)).error, kA, {"bad", "element 3"});

    expect_invalid(with(tensors_of(random_adapter(6, 4, 2, 1))).error, kA, {"F32[2, 5]", "F32[2, 4]", "bad"});
    expect_invalid(with(tensors_of(random_adapter(7, 5, 2, 1))).error, kB, {"F32[6, 2]", "F32[7, 2]", "bad"});
    const Refused unequal = with({matrix(kA, 3, 5, std::vector<float>(15)), fine[1]});
    expect_invalid(unequal.error, kA, {"F32[3, 5]", "F32[6, 2]", "bad", "no adapter"});
    EXPECT_EQ(unequal.fault, 1U);
    expect_invalid(with({fine[0]}).error, kB, {"bad", "lacks"});
    expect_invalid(with({fine[0], fine[1], f32("w", {1})}).error, "w", {"bad"});
    expect_invalid(with({matrix(kA, 0, 5, {}), matrix(kB, 6, 0, {})}).error, kA, {"no adapter"});

    const auto both = [&](const std::vector<TestTensor>& tensors) {
        return refusal_of({input_of("a", {tensors}), input_of("b", {tensors})}).error;
    };
    expect_invalid(both({fine[0]}), kB, {"lacks"});
    expect_invalid(both({fine[0], fine[1], f32("w", {1})}), "w", {"neither lora_A nor lora_B"});
    expect_invalid(both({fine[0], fine[1], i64("steps", {1})}), "steps", {"neither"});
    TestTensor wide{kA, DType::kF64, {2, 5}, std::string(80, '\0')};
    expect_invalid(both({wide, fine[1]}), kA, {"F64"});
    expect_invalid(refusal_of(inputs_of({random_adapter(9, 9, 600, 1), random_adapter(9, 9, 600, 2)})).error, kA,
                   {"1200", "1024"});
    expect_invalid(refusal_of(inputs_of({random_adapter(2, 1 << 20, 8, 1), random_adapter(2, 1 << 20, 8, 2)})).error,
                   kA, {"50331744 numbers", "33554432"});
}

std::size_t status_bytes(const std::string& line) {
    const std::string status = read_file("/proc/self/status").value();
    return std::stoull(status.substr(status.find("\n" + line + ":") + line.size() + 2)) << 10;
}

TEST(ProductTest, APairTakesTheMemoryThatIsCountedAndNoMore) {
    ATOLL_SKIP_IF_SANITIZED();
    constexpr std::size_t kInputs = 1 << 17, kOutputs = 8, kRank = 32;
    const auto aggregator = Aggregator::plan(
        product(),
        inputs_of({random_adapter(kOutputs, kInputs, kRank, 1), random_adapter(kOutputs, kInputs, kRank, 2)}), {1, 1});
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    ::malloc_trim(0);  // what earlier tests have left
    ASSERT_TRUE(std::ofstream("/proc/self/clear_refs").write("5", 1).flush().good()) << "the peak begins anew";
    const std::size_t before = status_bytes("VmRSS");
    Aggregator::Workspace workspace(*aggregator);
    std::vector<std::byte> part(64 << 10);
    ASSERT_TRUE(aggregator->read(0, 0, part, workspace).ok());
    constexpr std::size_t kCounted = pair_numbers(kInputs, kOutputs, 2 * kRank, kRank) * sizeof(float);
    EXPECT_LE(status_bytes("VmHWM") - before, kCounted + (16U << 20));
}

TEST(ProductTest, WhoMakesItOverflowIsNamed) {
    Adapter huge = random_adapter(6, 5, 2, 2);
    for (auto* values : {&huge.a, &huge.b})
        for (float& value : *values) value = 1e30F * (value + 1);
    const Refused refused = refusal_of({adapter_input("good", random_adapter(6, 5, 2, 1)), adapter_input("huge", huge)},
                                       RoundBase{adapter_input("base", random_adapter(6, 5, 2, 3), DType::kF16)});
    expect_invalid(refused.error, kA, {"overflows F16", "huge"});
    EXPECT_EQ(refused.fault, 1U);
}

TEST(ProductTest, ItsSettingsAreThoseOfAMean) {
    const auto parsed = parse_strategy({{"name", "product"}, {"weighting", "uniform"}, {"max_share", 0.6}});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(to_json(*parsed).at("weighting"), "uniform");
    EXPECT_EQ(to_json(*parsed).at("max_share"), 0.6);
    EXPECT_EQ(parse_strategy(to_json(*parsed)).value().name, "product");
    for (const char* other : {"trim", "outer"})
        EXPECT_EQ(parse_strategy({{"name", "product"}, {other, nullptr}, {other, 0.1}}).error().field,
                  "strategy." + std::string(other));
}

}  // namespace
}  // namespace atl::aggregate
