// Rows of embedding and head by who has seen their tokens.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "shared/aggregate/files.h"
#include "shared/aggregate/strategies/strategies.h"
#include "shared/aggregate/testing/bigram_model.h"
#include "shared/aggregate/testing/memory_models.h"
#include "shared/base/file.h"
#include "shared/model_config/token_counts.h"

namespace atl::aggregate {
namespace {

using Counts = std::vector<float>;

StrategySpec by_rows() {
    StrategySpec spec;
    spec.weighs_rows = true;
    return spec;
}

TestTensor table_of(const std::string& name, std::int64_t columns, const std::vector<float>& values) {
    return {name, DType::kF32, {std::ssize(values) / columns, columns}, bytes_of(values)};
}

std::shared_ptr<const ByteSource> counts_file(const Counts& counts) {
    return std::make_shared<MemoryFile>(file_of({f32(model_config::kTokenCounts, counts)}));
}

Input with_counts(Input input, const Counts& counts) {
    input.token_counts = counts_file(counts);
    return input;
}

std::vector<float> floats_at_end(const std::string& file, std::size_t count) {
    std::vector<float> values(count);
    std::memcpy(values.data(), file.data() + file.size() - count * sizeof(float), count * sizeof(float));
    return values;
}

// As tests/numerics/make_row_weight_goldens.py has them.
constexpr std::size_t kElements = 15;
const std::vector<double> kShares = {0.5, 0.3, 0.2};
const std::vector<Counts> kCounts = {{1, 0, 4, 0, 9}, {1, 6, 4, 0, 0}, {16, 0, 4, 0, 0}};

struct Golden {
    std::vector<float> base = std::vector<float>(kElements);
    std::vector<std::vector<float>> updates;

    Golden() {
        for (std::size_t at = 0; at < kElements; ++at) base[at] = static_cast<float>(std::cos(static_cast<double>(at)));
        for (int site = 0; site < 3; ++site) {
            std::vector<float>& update = updates.emplace_back();
            for (std::size_t at = 0; at < kElements; ++at)
                update.push_back(static_cast<float>(static_cast<double>(base[at]) +
                                                    0.1 * std::sin(0.7 * static_cast<double>(at) + site)));
        }
    }
    // Beside an embedding, another tensor of the same values.
    std::vector<Input> inputs(const std::vector<Counts>& counts) const {
        std::vector<Input> all;
        for (std::size_t i = 0; i < updates.size(); ++i)
            all.push_back(with_counts(model("u" + std::to_string(i), updates[i]), counts[i]));
        return all;
    }
    static Input model(const std::string& name, const std::vector<float>& values) {
        return input_of(name, {{table_of("model.layers.0.mlp.up_proj.weight", 3, values),
                                table_of("model.embed_tokens.weight", 3, values)}});
    }
    RoundBase start() const { return {model("base", base)}; }
};

TEST(RowWeightsTest, RowsAreAddedAsTheFormulaSaysAndOtherTensorsAveraged) {
    const auto golden = nlohmann::json::parse(read_file(ATOLL_GOLDEN_DIR "/row_weights/row_weights.json").value());
    const Golden made;
    const auto aggregator = Aggregator::plan(by_rows(), made.inputs(kCounts), kShares, {}, made.start());
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    const std::string file = whole_file(*aggregator, 0).value();
    const std::vector<float> rows = floats_at_end(file, kElements);
    for (std::size_t at = 0; at < kElements; ++at)
        EXPECT_NEAR(rows[at], golden.at("rows").at(at / 3).at(at % 3).get<double>(), 3e-7) << at;
    const auto mean = Aggregator::plan({}, made.inputs(kCounts), kShares, {}, made.start());
    const std::string averaged = whole_file(*mean, 0).value();
    const std::size_t embedding = kElements * sizeof(float);
    EXPECT_EQ(file.substr(0, file.size() - embedding), averaged.substr(0, averaged.size() - embedding));
    EXPECT_NE(file, averaged);
}

TEST(RowWeightsTest, TheSquaresOfARowsWeightsSumToOne) {
    const auto golden = nlohmann::json::parse(read_file(ATOLL_GOLDEN_DIR "/row_weights/row_weights.json").value());
    std::vector<std::vector<double>> frequencies;
    for (const Counts& counts : kCounts) {
        double total = 0;
        for (const float count : counts) total += static_cast<double>(count);
        auto& own = frequencies.emplace_back();
        for (const float count : counts) own.push_back(static_cast<double>(count) / total);
    }
    const std::vector<std::span<const double>> spans(frequencies.begin(), frequencies.end());
    for (std::size_t row = 0; row < 5; ++row) {
        const std::vector<double> weights = weigh_row(kShares, spans, row);
        double squares = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            squares += weights[i] * weights[i];
            EXPECT_NEAR(weights[i], golden.at("weights").at(row).at(i).get<double>(), 1e-12) << row;
        }
        EXPECT_NEAR(squares, row == 3 ? 0.38 : 1, 1e-12) << row << " (the shares, where nobody has seen it)";
    }
}

TEST(RowWeightsTest, NobodyIsBelievedToHaveSeenATokenMoreThanFourTimesAsOftenAsTheSecondMost) {
    const std::vector<double> shares = {0.5, 0.25, 0.25};
    const auto weights = [&](const std::vector<double>& seen) {
        const std::vector<std::span<const double>> frequencies = {
            std::span(seen).subspan(0, 1), std::span(seen).subspan(1, 1), std::span(seen).subspan(2, 1)};
        return weigh_row(shares, frequencies, 0);
    };
    EXPECT_EQ(weights({0.9, 0.1, 0.04}), weights({0.4, 0.1, 0.04}));
    EXPECT_EQ(weights({0.1, 0.9, 0.04}), weights({0.1, 0.4, 0.04}));
    EXPECT_NE(weights({0.3, 0.1, 0.04}), weights({0.4, 0.1, 0.04}));
    EXPECT_NE(weights({0.9, 0.9, 0.04}), weights({0.4, 0.1, 0.04}));
    EXPECT_EQ(weights({0, 0.9, 0}), (std::vector<double>{0, 1, 0})) << "which one alone has seen";
}

TEST(RowWeightsTest, TheBytesDependOnNoCutNoBlockAndNoUnitOfCounting) {
    // Rows of 700 elements, so that blocks, tiles and parts end within them.
    constexpr std::size_t kRows = 40, kWidth = 700;
    const auto values = [](unsigned seed) {
        std::mt19937 random(seed);
        std::vector<float> all(kRows * kWidth);
        for (float& value : all) value = static_cast<float>(random()) / 0x1p32F - 0.5F;
        return all;
    };
    const auto plan = [&](std::size_t block_bytes, float unit) {
        std::vector<Input> inputs;
        for (unsigned i = 0; i < 3; ++i) {
            Counts counts;
            for (std::size_t row = 0; row < kRows; ++row)
                counts.push_back(unit * static_cast<float>((row * 7 + i * 3) % 11));
            inputs.push_back(with_counts(
                input_of("u" + std::to_string(i), {{table_of("lm_head.weight", kWidth, values(i))}}), counts));
        }
        AggregatorOptions options;
        options.block_bytes = block_bytes;
        StrategySpec spec = by_rows();
        spec.server_optimizer = ServerOptimizer();
        return Aggregator::plan(spec, std::move(inputs), {1, 2, 3}, options,
                                RoundBase{input_of("base", {{table_of("lm_head.weight", kWidth, values(9))}})})
            .value();
    };
    const auto first = plan(128 << 10, 1);
    const std::string model = whole_file(first, 0).value(), momentum = whole_file(first, 1).value();
    for (const std::size_t block : {std::size_t{8}, std::size_t{4096}, std::size_t{9000}}) {
        const auto again = plan(block, 0x1p20F);
        EXPECT_EQ(whole_file(again, 0).value() == model, true) << block;
        EXPECT_EQ(whole_file(again, 1).value() == momentum, true) << block;
        Aggregator::Workspace workspace(again);
        std::string pieces(model.size(), '\0');
        constexpr std::size_t kPiece = 10'007;
        for (std::size_t at = 0; at < pieces.size(); at += kPiece) {
            const auto into =
                std::as_writable_bytes(std::span(pieces)).subspan(at, std::min(kPiece, pieces.size() - at));
            ASSERT_TRUE(again.read(0, at, into, workspace).ok());
        }
        EXPECT_EQ(pieces == model, true) << block;
    }
}

TEST(RowWeightsTest, CountsAreReadAPieceAtATimeHoweverManyTokensThereAre) {
    constexpr std::size_t kRows = 100'000, kBlock = 4096;
    std::vector<Input> inputs;
    for (int i = 0; i < 2; ++i)
        inputs.push_back(
            with_counts(input_of("u", {{table_of("model.embed_tokens.weight", 1, std::vector<float>(kRows, 1.0F))}}),
                        Counts(kRows, 1)));
    const std::vector<Input> read = inputs;
    const auto aggregator =
        Aggregator::plan(by_rows(), std::move(inputs), {1, 1}, {kBlock}, RoundBase{read.front()}).value();
    const auto largest_read = [&](const Input& input) {
        return dynamic_cast<const MemoryFile&>(*input.token_counts).largest_read();
    };
    for (const Input& input : read) EXPECT_LE(largest_read(input), 64U << 10) << "as they are looked at";
    ASSERT_TRUE(whole_file(aggregator, 0).ok());
    for (const Input& input : read) {
        EXPECT_LE(largest_read(input), 64U << 10);
        EXPECT_LE(dynamic_cast<const MemoryFile&>(*input.files[0].bytes).largest_read(), kBlock);
    }
}

TEST(RowWeightsTest, CountsThatAreMissingOrWrongNameTheirUpdate) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
    const Golden made;
    const auto refused = [&](const auto& spoil, const std::string& words) {
        SCOPED_TRACE(words);
        std::vector<Input> inputs = made.inputs(kCounts);
        spoil(inputs[1]);
        std::optional<std::size_t> fault;
        AggregatorOptions options;
        options.on_fault = [&](std::size_t input) { fault = input; };
        const auto plan = Aggregator::plan(by_rows(), inputs, kShares, options, made.start());
        ASSERT_FALSE(plan.ok());
        EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(plan.error().message.find("u1/token_counts.safetensors: "), 0U) << plan.error().message;
        EXPECT_NE(plan.error().message.find(words), std::string::npos) << plan.error().message;
        EXPECT_EQ(fault, 1U);
        EXPECT_TRUE(Aggregator::plan({}, inputs, kShares, {}, made.start()).ok()) << "who does not ask does not look";
    };
    const auto counts = [](const Counts& values) {
        return [values](Input& input) { input.token_counts = counts_file(values); };
    };
    refused([](Input& input) { input.token_counts = nullptr; }, "is missing");
    refused(counts({1, 6, 4, 0}), "has counts of the shape [4], but the model has 5 tokens");
    refused(counts({1, 6, -4, 0, 0}), "the count of token 2 is negative or not finite");
    refused(counts({1, 6, 4, 0, kNan}), "the count of token 4 is negative or not finite");
    refused(counts({kInfinity, 6, 4, 0, 0}), "the count of token 0 is negative or not finite");
    refused([](Input& input) { input.token_counts = std::make_shared<MemoryFile>("x"); }, "too short");
    refused(
        [](Input& input) { input.token_counts = std::make_shared<MemoryFile>(file_of({f32("w", {1, 2, 3, 4, 5})})); },
        "must hold one tensor \"token_counts\"");
}

TEST(RowWeightsTest, WhatItCannotWeighIsRefused) {
    const Golden made;
    const auto no_base = Aggregator::plan(by_rows(), made.inputs(kCounts), kShares);
    expect_invalid(no_base.error(), "strategy");
    const auto others = Aggregator::plan(by_rows(), {with_counts(input_of("u", {{f32("w", {1})}}), {1})}, {1}, {},
                                         RoundBase{input_of("base", {{f32("w", {1})}})});
    expect_invalid(others.error(), "strategy.row_weights", {"neither embedding nor head"});
    expect_invalid(parse_strategy({{"name", "trimmed_mean"}, {"row_weights", "tokens"}}).error(),
                   "strategy.row_weights");
    expect_invalid(parse_strategy({{"name", "fedavg"}, {"row_weights", "rows"}}).error(), "strategy.row_weights");
    const auto spec = parse_strategy({{"name", "fedavg"}, {"row_weights", "tokens"}});
    EXPECT_TRUE(spec.ok() && spec->weighs_rows);
    EXPECT_EQ(to_json(*spec).at("row_weights"), "tokens");
    EXPECT_FALSE(
        to_json(parse_strategy({{"name", "fedavg"}, {"row_weights", "mean"}}).value()).contains("row_weights"));
}

TEST(RowWeightsTest, DirectoriesHaveTheirCountsBesideThemAndTheResultHasNone) {
    const Golden made;
    const TemporaryDirectory directory;
    const auto write = [&](const std::string& name, const std::vector<float>& values, const Counts& counts) {
        const auto path = directory.path() / name;
        std::filesystem::create_directory(path);
        EXPECT_TRUE(
            write_file_atomic(path / "model.safetensors", file_of({table_of("model.embed_tokens.weight", 3, values)}))
                .ok());
        if (!counts.empty()) {
            EXPECT_TRUE(write_file_atomic(path / model_config::kTokenCountsFile,
                                          file_of({f32(model_config::kTokenCounts, counts)}))
                            .ok());
        }
        return open_directory(path).value();
    };
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < 3; ++i) inputs.push_back(write("u" + std::to_string(i), made.updates[i], kCounts[i]));
    auto aggregator =
        Aggregator::plan(by_rows(), std::move(inputs), kShares, {}, RoundBase{write("base", made.base, {})});
    ASSERT_TRUE(aggregator.ok()) << aggregator.error().message;
    ASSERT_TRUE(measure_inputs(*aggregator).ok());
    ASSERT_TRUE(write_aggregate(*aggregator, directory.path() / "u0", directory.path() / "out").ok());
    EXPECT_FALSE(std::filesystem::exists(directory.path() / "out" / model_config::kTokenCountsFile));
    const auto whole = Aggregator::plan(by_rows(), made.inputs(kCounts), kShares, {}, made.start());
    EXPECT_EQ(floats_at_end(read_file(directory.path() / "out/model.safetensors").value(), kElements),
              floats_at_end(whole_file(*whole, 0).value(), kElements));
}

// What one liar costs the sites beside it, which are all of one language: ten rounds of a table of bigrams, whose rows
// are those of its tokens. It hands in so many times its honest change of the first rows, none of the others, and says
// that its tokens were these.
struct Liar {
    double factor;
    Counts counts;
    std::size_t rows = kTokens;
};

Input table_with_counts(const Weights& weights, const Counts& counts) {
    return with_counts(
        input_of("u", {{table_of("lm_head.weight", kTokens, std::vector<float>(weights.begin(), weights.end()))}}),
        counts);
}

Weights train_site(const Weights& base, unsigned language, unsigned site, double rate) {
    const Weights truth = bigrams(language, site);
    Weights update = base;
    AdamW optimizer(kWeights);
    for (int step = 0; step < kSteps; ++step) optimizer.update(update, gradient_of(update, truth), rate);
    return update;
}

double perplexity_with(unsigned honest, const std::optional<Liar>& liar) {
    StrategySpec strategy = parse_strategy(nullptr).value();
    strategy.weighs_rows = true;
    Weights model(kWeights);
    std::vector<EarlierNorm> earlier;
    for (int round = 1; round <= kRounds; ++round) {
        const double rate = 0.1 * rate_factor(round), effort = rate * kSteps;
        std::vector<Input> inputs;
        for (unsigned site = 0; site < honest; ++site)
            inputs.push_back(table_with_counts(train_site(model, 1, site, rate), Counts(kTokens, 100)));
        if (liar) {
            Weights update = train_site(model, 2, honest, rate);
            for (std::size_t i = 0; i < kWeights; ++i)
                update[i] = model[i] + (i < liar->rows * kTokens ? liar->factor : 0) * (update[i] - model[i]);
            inputs.push_back(table_with_counts(update, liar->counts));
        }
        const std::vector<Assignment> assigned(inputs.size(), {.effort = effort, .tokens = 100, .element_max = effort});
        const std::vector<double> weights(inputs.size(), 1.0);
        auto aggregator = Aggregator::plan(strategy, std::move(inputs), weights, {},
                                           RoundBase{table_with_counts(model, Counts(kTokens))})
                              .value();
        const Prepared prepared = aggregator.prepare(totals_of(aggregator), assigned, earlier).value();
        for (std::size_t i = 0; i < prepared.figures.size(); ++i)
            earlier.push_back({prepared.figures[i].norm * prepared.figures[i].counted, effort, i});
        const std::vector<float> made = floats_at_end(whole_file(aggregator, 0).value(), kWeights);
        model.assign(made.begin(), made.end());
    }
    return perplexity(model, bigrams(1, 999));
}

const Counts kAsItIs(kTokens, 100);
constexpr double kFactors[] = {1, -1, -2.5, -9, 9};

TEST(RowWeightsTest, OneLiarCostsWhatTheThreatsSay) {
    struct Costs {
        unsigned honest;
        std::vector<double> of_factors;  // of its honest change times each of kFactors
    };
    for (const Costs& row :
         {Costs{1, {1.40, 1.87, 3.21, 1, 1}}, Costs{2, {1.01, 1, 1, 1, 1}}, Costs{7, {1, 1, 1, 1, 1}}}) {
        const double without = perplexity_with(row.honest, std::nullopt);
        for (std::size_t i = 0; i < std::size(kFactors); ++i)
            EXPECT_NEAR(perplexity_with(row.honest, Liar{kFactors[i], kAsItIs}) / without / row.of_factors[i], 1, 0.01)
                << row.honest << " honest, " << kFactors[i] << " times its change";
    }
}

TEST(RowWeightsTest, WhoLiesInTheCountsTooCostsWhatTheThreatsSay) {
    const auto in_rows = [](std::size_t rows, float count, float elsewhere) {
        Counts counts(kTokens, elsewhere);
        std::fill_n(counts.begin(), rows, count);
        return counts;
    };
    const std::vector<Counts> lies = {kAsItIs,
                                      Counts(kTokens),
                                      in_rows(1, 1e30F, 0),
                                      in_rows(1, 1e30F, 1e24F),
                                      in_rows(kTokens / 3, 7, 0),
                                      in_rows(kTokens / 2, 0x1p-100F, 0),
                                      in_rows(kTokens / 2, 9, 1)};
    struct Worst {
        unsigned honest;
        std::vector<double> of_factors;
    };
    for (const Worst& row :
         {Worst{1, {1.60, 3.48, 141, 1, 1}}, Worst{2, {1.04, 1.14, 1.82, 1, 1}}, Worst{7, {1, 1, 1.01, 1, 1}}}) {
        const double without = perplexity_with(row.honest, std::nullopt);
        for (std::size_t i = 0; i < std::size(kFactors); ++i) {
            double worst = 0;
            for (const Counts& counts : lies)
                for (const std::size_t rows : {kTokens, kTokens / 2})
                    worst = std::max(worst, perplexity_with(row.honest, Liar{kFactors[i], counts, rows}));
            EXPECT_NEAR(worst / without / row.of_factors[i], 1, 0.01)
                << row.honest << " honest, " << kFactors[i] << " times its change";
        }
    }
}

TEST(RowWeightsTest, HowManyTokensALiarSaysItHasSeenChangesNothing) {
    const double honest = perplexity_with(2, Liar{-1, Counts(kTokens, 128)});
    EXPECT_EQ(perplexity_with(2, Liar{-1, Counts(kTokens, 0x1p100F)}), honest);
}

}  // namespace
}  // namespace atl::aggregate
