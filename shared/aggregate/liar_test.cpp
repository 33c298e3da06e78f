// What one lying site costs a federation of two, three and eight, with each strategy: the table of services/THREATS.md.
// Each site trains by AdamW on the exact gradient of its own bigrams. bench/learning/liars.py plays the same with the
// trainer and real text, liar_product_test.cpp with adapters.
#include <functional>
#include <random>

#include "shared/aggregate/testing/bigram_model.h"
#include "shared/aggregate/testing/memory_models.h"

namespace atl::aggregate {
namespace {

constexpr double kRate = 0.1;

// What a site's training makes of the model.
Weights train(Weights model, const Weights& truth, double rate, int steps) {
    AdamW optimizer(kWeights);
    for (int step = 0; step < steps; ++step) optimizer.update(model, gradient_of(model, truth), rate);
    return model;
}

// What a site hands in, of the round's base, of what it has trained and of the first site's update. Of two the other's
// is not known to it, but the model of the round before and its own update nearly tell.
using Lie = std::function<Weights(const Weights& base, const Weights& honest, const Weights& first, int round)>;

Lie times(double factor) {
    return [factor](const Weights& base, const Weights& honest, const Weights&, int) {
        Weights update = base;
        for (std::size_t i = 0; i < kWeights; ++i) update[i] += factor * (honest[i] - base[i]);
        return update;
    };
}

// Of so many times the honest change's length.
Lie noise(double factor) {
    return [factor](const Weights& base, const Weights& honest, const Weights&, int round) {
        double squares = 0;
        for (std::size_t i = 0; i < kWeights; ++i) squares += (honest[i] - base[i]) * (honest[i] - base[i]);
        std::mt19937 dice(static_cast<unsigned>(round));
        Weights update = base;
        for (double& weight : update)  // uniform of variance one
            weight += factor * std::sqrt(3 * squares / kWeights) * (static_cast<double>(dice()) / 0x1p31 - 1);
        return update;
    };
}

// So many times the first site's change.
Lie times_the_first(double factor) {
    return [factor](const Weights& base, const Weights&, const Weights& first, int) {
        Weights update = base;
        for (std::size_t i = 0; i < kWeights; ++i) update[i] += factor * (first[i] - base[i]);
        return update;
    };
}

Lie copy_of_the_first() {
    return [](const Weights&, const Weights&, const Weights& first, int) { return first; };
}

struct Site {
    Weights truth;
    int steps = kSteps;
    Lie lie = {};        // none: it is honest
    int from = 1;        // the first round in which it lies
    double claimed = 1;  // times the rows that it has
    double density = 1;  // of the tokens that were assigned, those that it says it has seen
};

Input input_of_weights(const Weights& weights) {
    return input_of("u", {{f32("w", std::vector<float>(weights.begin(), weights.end()))}});
}

Weights weights_of(const std::string& file) {
    std::vector<float> values(kWeights);
    const std::size_t bytes = kWeights * sizeof(float);
    std::memcpy(values.data(), file.data() + file.size() - bytes, bytes);
    return {values.begin(), values.end()};
}

struct Federation {
    StrategySpec strategy;
    double still_learning = 0;  // a low rate that is kept: the model goes on learning; 0: kRate, falling
    std::vector<EarlierNorm> earlier = {};
    std::map<std::string, Input, std::less<>> state = {};  // of a server optimizer

    Weights make_round(const Weights& base, const std::vector<Site>& sites, int round) {
        std::vector<Input> inputs;
        std::vector<Assignment> assigned;
        std::vector<double> weights;
        Weights first;
        const double rate = still_learning > 0 ? still_learning : kRate * rate_factor(round);
        for (const Site& site : sites) {
            Weights update = train(base, site.truth, rate, site.steps);
            if (first.empty()) first = update;
            if (site.lie && round >= site.from) update = site.lie(base, update, first, round);
            inputs.push_back(input_of_weights(update));
            const double effort = rate * site.steps;
            assigned.push_back({.effort = effort, .claimed = site.claimed, .tokens = 100, .element_max = effort});
            weights.push_back(100 * site.density);
        }
        auto aggregator = Aggregator::plan(strategy, std::move(inputs), believable_weights(weights, assigned), {},
                                           RoundBase{input_of_weights(base), state})
                              .value();
        const Prepared prepared = aggregator.prepare(totals_of(aggregator), assigned, earlier).value();
        for (std::size_t i = 0; i < prepared.figures.size(); ++i)
            earlier.push_back({prepared.figures[i].norm * prepared.figures[i].counted, assigned[i].effort, i});
        if (strategy.server_optimizer)
            state.insert_or_assign("momentum", input_of_weights(weights_of(whole_file(aggregator, 1).value())));
        return weights_of(whole_file(aggregator, 0).value());
    }

    // The first site's perplexity after so many rounds.
    double perplexity_after(int rounds, const std::vector<Site>& sites) {
        Weights model(kWeights);
        for (int round = 1; round <= rounds; ++round) model = make_round(model, sites, round);
        return perplexity(model, sites[0].truth);
    }

    // Of two it may end as jobs do, with the best model that the first site has found, where that finds one three times
    // worse.
    Weights run(const std::vector<Site>& sites) {
        Weights model = weights_of(whole_file_of(Weights(kWeights))), best = model;
        for (int round = 1; round <= kRounds; ++round) {
            model = make_round(model, sites, round);
            const double found = perplexity(model, sites[0].truth), least = perplexity(best, sites[0].truth);
            if (found < least) best = model;
            if (pauses && found >= 3 * least) {
                paused_in = round;
                return best;
            }
        }
        return model;
    }
    bool pauses = false;
    int paused_in = 0;

    static std::string whole_file_of(const Weights& weights) {
        return file_of({f32("w", std::vector<float>(weights.begin(), weights.end()))});
    }
};

StrategySpec default_strategy() {
    return parse_strategy(nullptr).value();
}

StrategySpec plain_mean() {
    return {};
}

StrategySpec trimmed_by(double trim) {
    StrategySpec spec = default_strategy();
    spec.name = "trimmed_mean";
    spec.trim = trim;
    return spec;
}

StrategySpec median() {
    StrategySpec spec = default_strategy();
    spec.name = "median";
    return spec;
}

// DiLoCo's, at the rate and momentum that it has by default.
StrategySpec outer() {
    StrategySpec spec = default_strategy();
    spec.server_optimizer = ServerOptimizer();
    return spec;
}

StrategySpec outer(OuterKind kind) {
    StrategySpec spec = outer();
    spec.server_optimizer->kind = kind;
    spec.server_optimizer->learning_rate = outer_row(kind).learning_rate;
    return spec;
}

// All of one language, and one of another, the last.
std::vector<Site> sites_of(unsigned count) {
    std::vector<Site> sites;
    for (unsigned i = 0; i + 1 < count; ++i) sites.push_back({bigrams(1, i)});
    sites.push_back({bigrams(2, count)});
    return sites;
}

// How much worse the others' language ends with the last site than without it, as it was trained or lying.
double cost(unsigned count, const StrategySpec& strategy, Lie lie, int from = 1) {
    std::vector<Site> sites = sites_of(count);
    const std::vector<Site> others(sites.begin(), sites.end() - 1);
    sites.back().lie = std::move(lie);
    sites.back().from = from;
    const Weights truth = bigrams(1, 999);
    StrategySpec undefended = plain_mean();
    undefended.server_optimizer = strategy.server_optimizer;
    return perplexity(Federation{strategy}.run(sites), truth) / perplexity(Federation{undefended}.run(others), truth);
}

constexpr double kLost = 1e6;  // nothing is left of the model
// What the last site hands in, times its honest change.
constexpr double kLies[] = {1, -1, -2.5, -9, 9};

struct Row {
    const char* strategy;
    StrategySpec spec;
    unsigned count;
    std::vector<double> costs;  // of each of kLies
};

TEST(LiarTest, OneLiarCostsWhatTheThreatsSay) {
    const std::vector<Row> rows = {
        {"fedavg", default_strategy(), 2, {1.41, 1.62, 2.42, 1, 1}},
        {"fedavg", default_strategy(), 3, {1.01, 1, 1, 1, 1}},
        {"fedavg", default_strategy(), 8, {1, 1, 1, 1, 1}},
        {"trimmed_mean", trimmed_by(0.2), 2, {1.41, 1.62, 2.42, 1, 1}},
        {"trimmed_mean", trimmed_by(0.2), 3, {1, 1, 1, 1, 1}},
        {"trimmed_mean", trimmed_by(0.2), 8, {1, 1, 1, 1, 1}},
        {"median", median(), 2, {1.41, 1.62, 2.42, 1, 1}},
        {"median", median(), 3, {1, 1, 1, 1, 1}},
        {"median", median(), 8, {1, 1, 1, 1, 1}},
        {"fedavg with outer", outer(), 2, {1.47, 30.9, 550, 1, 1}},
        {"fedavg with outer", outer(), 3, {1, 1.06, 1, 1, 1}},
        {"fedavg with outer", outer(), 8, {1, 1, 1, 1, 1}},
        {"outer momentum", outer(OuterKind::kMomentum), 2, {1.28, 432, 61332, 1.33, 1.33}},
        {"outer momentum", outer(OuterKind::kMomentum), 3, {0.915, 1.315, 1.18, 1.1, 1.1}},
        {"outer momentum", outer(OuterKind::kMomentum), 8, {0.916, 1, 1, 1, 1}},
        {"outer adam", outer(OuterKind::kAdam), 2, {6.39, 24, 44.2, 0.976, 0.976}},
        {"outer adam", outer(OuterKind::kAdam), 3, {1.235, 1.178, 1.613, 0.965, 0.965}},
        {"outer adam", outer(OuterKind::kAdam), 8, {0.911, 0.937, 1.02, 0.974, 0.974}},
        {"fedavg without clip and drop", plain_mean(), 2, {1.41, 1.62, 3576, kLost, 6.1}},
        {"fedavg without clip and drop", plain_mean(), 3, {1.02, 1.02, 4.4, kLost, 5.5}},
        {"fedavg without clip and drop", plain_mean(), 8, {1, 1, 1, 11.1, 3.0}},
    };
    for (const Row& row : rows)
        for (std::size_t i = 0; i < std::size(kLies); ++i)
            EXPECT_NEAR(std::min(cost(row.count, row.spec, times(kLies[i])), kLost) / row.costs[i], 1, 0.02)
                << row.strategy << " of " << row.count << ", " << kLies[i] << " times its change";
}

TEST(LiarTest, OfThreeALieOfAnyKindCostsLittle) {
    EXPECT_LT(cost(3, default_strategy(), noise(1)), 1.05);
    EXPECT_LT(cost(3, default_strategy(), noise(2.5)), 1.05);
    EXPECT_LT(cost(3, default_strategy(), noise(9)), 1.05);
    EXPECT_LT(cost(3, default_strategy(), copy_of_the_first()), 1.05);
    EXPECT_LT(cost(3, default_strategy(), times(0)), 1.05);
}

// While the honest changes stay long, a lie of their length takes away much of every step, and no round is worse than
// the one before, so that nothing pauses the job.
TEST(LiarTest, OfThreeThatStillLearnALieOfTheirLengthCostsWhatTheThreatsSay) {
    const auto after = [](int rounds, std::size_t count, double lie) {
        std::vector<Site> sites(count, Site{bigrams(1, 0), 10});
        if (lie != 1) sites.back().lie = times(lie);
        return Federation{default_strategy(), 0.01}.perplexity_after(rounds, sites);
    };
    EXPECT_NEAR(after(0, 3, 1), 24.0, 1e-3);
    EXPECT_NEAR(after(8, 3, 1), 13.0, 0.1);
    EXPECT_NEAR(after(8, 2, 1), 13.0, 0.1);
    EXPECT_NEAR(after(8, 3, -1), 18.5, 0.1);
    EXPECT_NEAR(after(8, 3, -1.39), 18.6, 0.1);
    EXPECT_NEAR(after(3, 3, 1), 18.0, 0.1);
    EXPECT_NEAR(after(3, 3, -9), 19.6, 0.1);
    for (int round = 1; round <= 8; ++round)
        EXPECT_LT(after(round, 3, -1.39), after(round - 1, 3, -1.39)) << "round " << round;
}

TEST(LiarTest, OfThreeWhoTurnsAnothersChangeAroundCostsLittle) {
    for (const double factor : {-1.0, -1.4, -9.0}) EXPECT_LT(cost(3, default_strategy(), times_the_first(factor)), 1.4);
}

// The most that two sites can come to is the last model that the honest one did not find three times worse.
TEST(LiarTest, OfTwoWhoTurnsTheOthersChangeAroundIsFoundByItsEvaluations) {
    for (const double factor : {-1.2, -1.4}) {
        std::vector<Site> sites = sites_of(2);
        sites[1].lie = times_the_first(factor);
        Federation federation{default_strategy()};
        federation.pauses = true;
        const Weights model = federation.run(sites);
        EXPECT_GT(federation.paused_in, 0) << factor;
        EXPECT_LE(perplexity(model, sites[0].truth), perplexity(Weights(kWeights), sites[0].truth)) << factor;
    }
}

TEST(LiarTest, WhoClaimsMoreTokensOrRowsThanTheOthersCostsNoMore) {
    const Weights truth = bigrams(1, 999);
    const auto ends_at = [&](double lie, double claimed, double density) {
        std::vector<Site> sites = sites_of(3);
        for (Site& site : sites) site.density = 0.25;  // texts of which a quarter is learnt from
        sites[2].lie = times(lie);
        sites[2].claimed = claimed;
        sites[2].density = density;
        return perplexity(Federation{default_strategy()}.run(sites), truth);
    };
    const std::vector<Site> sites = sites_of(3);
    const double alone = perplexity(Federation{plain_mean()}.run({sites.begin(), sites.end() - 1}), truth);
    for (const double lie : {-1.0, -2.5, -9.0}) {
        EXPECT_LT(ends_at(lie, 1, 1) / alone, 1.4) << lie << " and all tokens";
        EXPECT_LT(ends_at(lie, 10, 1) / alone, 1.4) << lie << " and ten times the rows";
    }
}

TEST(LiarTest, ALiarThatBeginsLateCostsNoMore) {
    for (const double lie : {-9.0, -2.5}) EXPECT_LT(cost(3, default_strategy(), times(lie), 5), 1.01) << lie;
}

TEST(LiarTest, HonestSitesOfOtherStepsCountWhole) {
    for (const int few : {3, 10}) {
        std::vector<Site> sites = sites_of(3);
        sites[0].steps = few;
        for (const unsigned language : {1U, 2U}) {
            const Weights truth = bigrams(language, 999);
            EXPECT_LT(perplexity(Federation{default_strategy()}.run(sites), truth) /
                          perplexity(Federation{plain_mean()}.run(sites), truth),
                      1.02)
                << few << " steps instead of 30, language " << language;
        }
    }
}

TEST(LiarTest, OfTwoNeitherShrinksTheOtherByHardlyMoving) {
    std::vector<Site> sites = sites_of(2);
    sites[1].lie = times(1e-6);
    const Weights truth = bigrams(1, 999);
    EXPECT_NEAR(perplexity(Federation{default_strategy()}.run(sites), truth) /
                    perplexity(Federation{plain_mean()}.run(sites), truth),
                1, 1e-6);
}

}  // namespace
}  // namespace atl::aggregate
