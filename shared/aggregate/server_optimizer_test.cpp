#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "shared/aggregate/testing/memory_models.h"
#include "shared/base/file.h"

namespace atl::aggregate {
namespace {

StrategySpec step(double rate = 0.7, double beta = 0.9) {
    StrategySpec strategy;
    strategy.server_optimizer = ServerOptimizer{rate, beta};
    return strategy;
}

std::optional<Error> error_of(const StrategySpec& strategy, std::vector<Input> inputs, std::optional<RoundBase> start) {
    const std::vector<double> weights(inputs.size(), 1.0);
    const auto aggregator = Aggregator::plan(strategy, std::move(inputs), weights, {}, std::move(start));
    if (!aggregator.ok()) return aggregator.error();
    for (std::size_t i = 0; i < aggregator->files().size(); ++i) {
        const auto bytes = whole_file(*aggregator, i);
        if (!bytes.ok()) return bytes.error();
    }
    return std::nullopt;
}

// The last `count` numbers of a file.
std::vector<float> floats_of(const std::string& bytes, std::size_t count) {
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data() + bytes.size() - count * sizeof(float), count * sizeof(float));
    return values;
}

Input file_input(const std::string& name, std::string bytes) {
    return {name, {{"model.safetensors", std::make_shared<MemoryFile>(std::move(bytes))}}};
}

// The weights after three rounds; start and updates as tests/numerics/make_outer_goldens.py has them.
std::vector<float> weights_after(const StrategySpec& strategy) {
    const auto names = outer_row(strategy.server_optimizer->kind).state;
    std::vector<float> weights(6);
    for (std::size_t i = 0; i < 6; ++i) weights[i] = static_cast<float>(std::cos(static_cast<double>(i)));
    std::map<std::string, Input, std::less<>> state;
    for (int round = 1; round <= 3; ++round) {
        std::vector<Input> updates;
        for (int site = 0; site < 2; ++site) {
            std::vector<float> update = weights;
            for (std::size_t i = 0; i < 6; ++i)
                update[i] += static_cast<float>(0.1 * std::sin(0.7 * static_cast<double>(i) + 0.9 * round + site));
            updates.push_back(input_of("update", {{f32("w", update)}}));
        }
        const auto aggregator = Aggregator::plan(strategy, std::move(updates), {3, 1}, {},
                                                 RoundBase{input_of("base", {{f32("w", weights)}}), state});
        EXPECT_TRUE(aggregator.ok());
        if (!aggregator.ok()) return weights;
        EXPECT_EQ(aggregator->files().size(), 1 + names.size());
        weights = floats_of(whole_file(*aggregator, 0).value(), 6);
        for (std::size_t i = 0; i < names.size(); ++i) {
            const std::string name(names[i]);
            EXPECT_EQ(aggregator->files()[1 + i].path, name + "/part0.safetensors");
            state.insert_or_assign(name, file_input(name, whole_file(*aggregator, 1 + i).value()));
        }
    }
    return weights;
}

double worst_distance(const std::vector<float>& weights, const nlohmann::json& golden) {
    double worst = 0;
    for (std::size_t i = 0; i < 6; ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(weights[i]) - golden["weights"][i].get<double>()));
    }
    return worst;
}

TEST(ServerOptimizerTest, ThreeRoundsGoAsPyTorchsSgd) {
    const auto text = read_file(ATOLL_GOLDEN_DIR "/outer/outer.json");
    ASSERT_TRUE(text.ok());
    const auto goldens = nlohmann::json::parse(*text);
    ASSERT_EQ(goldens.size(), 3U);
    for (const auto& golden : goldens) {
        const double rate = golden["lr"].get<double>(), beta = golden["momentum"].get<double>();
        EXPECT_LE(worst_distance(weights_after(step(rate, beta)), golden), 1e-6) << rate << " " << beta;
        EXPECT_GT(worst_distance(weights_after(step(rate, beta + 0.01)), golden), 1e-4) << "control: another momentum";
    }
}

TEST(ServerOptimizerTest, ThreeRoundsGoAsTheirFormulasSay) {
    const auto goldens = nlohmann::json::parse(read_file(ATOLL_GOLDEN_DIR "/outer/outer_formulas.json").value());
    ASSERT_EQ(goldens.size(), 4U);
    for (const auto& golden : goldens) {
        const auto spec = parse_strategy({{"name", "fedavg"}, {"max_share", 1}, {"outer", golden["outer"]}});
        ASSERT_TRUE(spec.ok()) << spec.error().message;
        EXPECT_EQ(to_json(*spec)["outer"], golden["outer"]) << "nothing is lost on the way";
        EXPECT_LE(worst_distance(weights_after(*spec), golden), 1e-6) << golden["outer"];
        StrategySpec other = *spec;
        other.server_optimizer->beta1 += 0.01;
        EXPECT_GT(worst_distance(weights_after(other), golden), 1e-5) << "control: another momentum";
        if (spec->server_optimizer->kind != OuterKind::kAdam) continue;
        other = *spec;
        other.server_optimizer->beta2 -= 0.01;
        EXPECT_GT(worst_distance(weights_after(other), golden), 1e-5) << "control: another beta2";
    }
}

TEST(ServerOptimizerTest, EachHasItsDefaultsAndTakesNoneOfAnothers) {
    const auto parsed = [](const nlohmann::json& outer) {
        return parse_strategy({{"name", "fedavg"}, {"outer", outer}});
    };
    EXPECT_EQ(
        to_json(*parsed({{"optimizer", "adam"}}))["outer"],
        (nlohmann::json{{"optimizer", "adam"}, {"lr", 0.01}, {"momentum", 0.9}, {"beta2", 0.99}, {"epsilon", 0.001}}));
    EXPECT_EQ(parsed({{"optimizer", "momentum"}})->server_optimizer->learning_rate, 1);
    EXPECT_EQ(parsed(nlohmann::json::object())->server_optimizer->learning_rate, ServerOptimizer().learning_rate);
    for (const OuterRow& row : outer_rows()) EXPECT_EQ(&outer_row(row.kind), &row);
    expect_invalid(parsed({{"optimizer", "nesterov"}, {"beta2", 0.9}}).error(), "strategy.outer.beta2");
    expect_invalid(parsed({{"optimizer", "yogi"}}).error(), "strategy.outer.optimizer", {"yogi", "adam"});
}

TEST(ServerOptimizerTest, BlocksAndCutsDoNotChangeTheBitsWhateverTheTypes) {
    std::vector<float> values(1237);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    const std::vector<float> reversed(values.rbegin(), values.rend());
    const Input update = input_of("update", {{f32("half", values), i64("ids", {1, 2}), f16("single", reversed)}});
    const Input base = input_of("base", {{f16("half", reversed), i64("ids", {1, 2}), f32("single", values)}});
    const Input momentum = input_of("momentum", {{f32("single", values), f32("half", values)}});
    std::vector<std::string> reference(2);
    for (const std::size_t block : {1U << 20, 8U, 10U, 1000U}) {
        const auto aggregator =
            Aggregator::plan(step(), {update, update}, {1, 2}, {block}, RoundBase{base, {{"momentum", momentum}}});
        ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
        for (std::size_t file = 0; file < 2; ++file) {
            Aggregator::Workspace workspace(*aggregator);
            std::string bytes(aggregator->files()[file].size, '\0');
            if (reference[file].empty()) reference[file] = whole_file(*aggregator, file).value();
            for (std::size_t at = 0; at < bytes.size(); at += 333) {
                const auto part = std::as_writable_bytes(std::span(bytes)).subspan(at);
                ASSERT_TRUE(
                    aggregator->read(file, at, part.first(std::min<std::size_t>(333, part.size())), workspace).ok());
            }
            EXPECT_EQ(bytes, reference[file]) << "block " << block << " file " << file;
        }
    }
    EXPECT_NE(reference[1].find("\"half\":{\"dtype\":\"F32\""), std::string::npos) << "momentum is F32";
    EXPECT_EQ(reference[1].find("\"ids\""), std::string::npos) << "integers have no momentum";
}

TEST(ServerOptimizerTest, WithoutAStepTheBasesNumbersChangeNothing) {
    const Input a = input_of("a", {{f16("w", {1, 2})}});
    const Input b = input_of("b", {{f16("w", {3, 5})}});
    const auto aggregator = Aggregator::plan({}, {a, b}, {1, 1}, {}, RoundBase{input_of("base", {{f16("w", {7, 7})}})});
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    ASSERT_EQ(aggregator->files().size(), 1U);
    EXPECT_EQ(whole_file(*aggregator, 0).value(), file_of({f16("w", {2, 3.5})}));
}

TEST(ServerOptimizerTest, AnUpdateWithOtherTensorsThanItsBaseIsNamed) {
    const Input good = input_of("good", {{f32("v", {1}), f32("w", {1, 2})}});
    const Input base = input_of("base", {{f32("v", {1}), f32("w", {1, 2})}});
    expect_invalid(error_of({}, {good, input_of("bad", {{f32("v", {1})}})}, RoundBase{base}), "w",
                   {"bad lacks", "of base"});
    expect_invalid(
        error_of({}, {input_of("bad", {{f32("v", {1}), f32("w", {1, 2}), f32("x", {1})}}), good}, RoundBase{base}), "x",
        {"bad has", "that base"});
    expect_invalid(error_of({}, {input_of("bad", {{f32("v", {1}), f16("w", {1, 2, 3})}})}, RoundBase{base}), "w",
                   {"F32[2] in base", "F16[3] in bad"});
    expect_invalid(error_of({}, {input_of("bad", {{f32("v", {1}), i64("w", {1, 2})}})}, RoundBase{base}), "w",
                   {"F32[2] in base", "I64[2] in bad"});
}

TEST(ServerOptimizerTest, NaNInBaseOrMomentumIsNamed) {
    const Input update = input_of("update", {{f32("w", {1, 2})}});
    const Input spoilt = input_of("spoilt", {{f32("w", {1, NAN})}});
    expect_invalid(error_of(step(), {update}, RoundBase{spoilt}), "w", {"of spoilt", "element 1"});
    expect_invalid(error_of(step(), {update}, RoundBase{update, {{"momentum", spoilt}}}), "w",
                   {"of spoilt", "element 1"});
    const Input small = input_of("small", {{f16("w", {-6e4F})}});
    const Input large = input_of("large", {{f16("w", {6e4F})}});
    expect_invalid(error_of(step(), {small}, RoundBase{large}), "w", {"step", "F16"});
}

TEST(ServerOptimizerTest, AMomentumOfAnotherModelIsRefused) {
    const Input model = input_of("model", {{f32("w", {1, 2})}});
    expect_invalid(error_of(step(), {model}, RoundBase{model, {{"momentum", input_of("m", {{f32("v", {1, 2})}})}}}),
                   "w", {"m lacks"});
    expect_invalid(error_of(step(), {model}, RoundBase{model, {{"momentum", input_of("m", {{f32("w", {1})}})}}}), "w",
                   {"F32[2]", "F32[1] in m"});
    expect_invalid(error_of(step(), {model}, RoundBase{model, {{"momentum", input_of("m", {{f16("w", {1, 2})}})}}}),
                   "w", {"F32[2]", "F16[2] in m"});
}

TEST(ServerOptimizerTest, RatesThatMeanNothingAreRefused) {
    const Input model = input_of("model", {{f32("w", {1, 2})}});
    for (const double rate : {0.0, -1.0, std::nan(""), INFINITY + 0.0})
        expect_invalid(error_of(step(rate), {model}, RoundBase{model}), "lr");
    for (const double beta : {-0.1, 1.0, std::nan("")})
        expect_invalid(error_of(step(0.7, beta), {model}, RoundBase{model}), "momentum");
    StrategySpec adam = step();
    adam.server_optimizer->kind = OuterKind::kAdam;
    adam.server_optimizer->beta2 = 1;
    expect_invalid(error_of(adam, {model}, RoundBase{model}), "beta2");
    adam.server_optimizer->beta2 = 0.9;
    adam.server_optimizer->epsilon = 0;
    expect_invalid(error_of(adam, {model}, RoundBase{model}), "epsilon");
    expect_invalid(error_of(step(), {model}, std::nullopt), "strategy");
    const TestTensor wide{"w", DType::kF64, {1}, bytes_of(std::vector<double>{1})};
    expect_invalid(error_of(step(), {input_of("a", {{wide}})}, RoundBase{input_of("b", {{wide}})}), "w",
                   {"F64", "fp32"});
}

}  // namespace
}  // namespace atl::aggregate
