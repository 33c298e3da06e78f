// What one site that lies in its control variate costs a federation: the row of services/THREATS.md. The sites and
// their bigrams are those of liar_test.cpp; each adds to its gradients what the mean of all control variates says.
#include <functional>
#include <numeric>

#include "shared/aggregate/testing/bigram_model.h"
#include "shared/aggregate/testing/variate_models.h"

namespace atl::aggregate {
namespace {

constexpr double kPart = 0.7;

// What a site hands in instead of its own, of the mean of the others'.
using VariateLie = std::function<Weights(const Weights& own, const Weights& others)>;

struct VariateSite {
    Weights truth;
    double factor = 1;    // of its change
    int since = 1;        // the first round that it has an update in
    VariateLie lie = {};  // none: it is honest
    Weights own = {};     // its control variate, from the round before
};

VariateLie own_times(double factor) {
    return [factor](const Weights& own, const Weights&) {
        Weights lie = own;
        for (double& value : lie) value *= factor;
        return lie;
    };
}

// So many times its own norm against the others'.
VariateLie against_the_others(double factor) {
    return [factor](const Weights& own, const Weights& others) {
        double of_own = 0, of_others = 0;
        for (const double value : own) of_own += value * value;
        for (const double value : others) of_others += value * value;
        Weights lie = others;
        for (double& value : lie) value *= -factor * std::sqrt(of_own / of_others);
        return lie;
    };
}

Weights noise_of_its_norm(const Weights& own, const Weights&) {
    double squares = 0;
    for (const double value : own) squares += value * value;
    std::mt19937 dice(7);
    Weights lie(own.size());
    for (double& value : lie)
        value = std::sqrt(3 * squares / static_cast<double>(kWeights)) * (static_cast<double>(dice()) / 0x1p31 - 1);
    return lie;
}

struct Trained {
    Weights model, variate;
};

// The mean of `common`, which is empty in the first round, against the site's own: its steps' gradients are summed
// before that is added.
Trained train_with(const Weights& base, const VariateSite& site, const Weights& common, double rate) {
    Trained made{base, Weights(kWeights)};
    AdamW optimizer(kWeights);
    for (int step = 0; step < kSteps; ++step) {
        Weights gradient = gradient_of(made.model, site.truth);
        for (std::size_t i = 0; i < kWeights; ++i) {
            made.variate[i] += gradient[i] / kSteps;
            if (!common.empty() && !site.own.empty()) gradient[i] += kPart * (common[i] - site.own[i]);
        }
        optimizer.update(made.model, gradient, rate);
    }
    return made;
}

Input model_of(const Weights& weights) {
    return input_of("u", {{f32("w", std::vector<float>(weights.begin(), weights.end()))}});
}

std::shared_ptr<const ByteSource> file_of_variate(const Weights& variate) {
    return variate_file({variate_tensor("w", {static_cast<std::int64_t>(kWeights)},
                                        std::vector<float>(variate.begin(), variate.end()))});
}

struct VariateFederation {
    StrategySpec strategy;
    std::vector<EarlierNorm> earlier = {};
    Weights common = {};

    Weights make_round(const Weights& base, std::vector<VariateSite>& sites, int round) {
        std::vector<Input> inputs;
        const double rate = 0.1 * rate_factor(round), effort = rate * kSteps;
        Weights others(kWeights);
        const auto there = static_cast<std::size_t>(
            std::ranges::count_if(sites, [&](const VariateSite& site) { return site.since <= round; }));
        for (VariateSite& site : sites) {
            if (site.since > round) continue;
            Trained made = train_with(base, site, strategy.control_variate ? common : Weights(), rate);
            for (std::size_t i = 0; i < kWeights; ++i) {
                made.model[i] = base[i] + site.factor * (made.model[i] - base[i]);
                if (!site.lie) others[i] += made.variate[i] / static_cast<double>(sites.size());
            }
            site.own = made.variate;
            inputs.push_back(model_of(made.model));
            inputs.back().control_variate = file_of_variate(site.lie ? site.lie(made.variate, others) : made.variate);
        }
        RoundBase start{.base = model_of(base), .digest = kVariateBase};
        if (!common.empty())
            start.control_variate = input_of(
                "c",
                {{bf16("w", {static_cast<std::int64_t>(kWeights)}, std::vector<float>(common.begin(), common.end()))}});
        const std::vector<Assignment> assigned(there, {.effort = effort, .tokens = 100, .element_max = effort});
        const std::vector<double> weights(there, 1.0);
        auto aggregator = Aggregator::plan(strategy, std::move(inputs), weights, {}, std::move(start)).value();
        const Prepared prepared = aggregator.prepare(all_totals(aggregator), assigned, earlier).value();
        for (std::size_t i = 0; there == sites.size() && i < prepared.figures.size(); ++i)
            earlier.push_back({prepared.figures[i].norm * prepared.figures[i].counted, effort, i});
        const auto take = [](const std::vector<float>& values) { return Weights(values.begin(), values.end()); };
        common.clear();
        if (strategy.control_variate && !aggregator.leaves_out(1))
            common = take(bf16_at_end(whole_file(aggregator, 1).value(), kWeights));
        std::vector<float> made(kWeights);
        const std::string file = whole_file(aggregator, 0).value();
        std::memcpy(made.data(), file.data() + file.size() - kWeights * sizeof(float), kWeights * sizeof(float));
        return take(made);
    }

    Weights run(std::vector<VariateSite> sites) {
        Weights model(kWeights);
        for (int round = 1; round <= kRounds; ++round) model = make_round(model, sites, round);
        return model;
    }
};

StrategySpec defended(bool has_variates) {
    StrategySpec spec = parse_strategy(nullptr).value();
    if (has_variates) spec.control_variate = kPart;
    return spec;
}

StrategySpec undefended() {
    StrategySpec spec = defended(true);
    spec.clip = spec.drop = std::nullopt;
    return spec;
}

// All of one language, and the last of another.
std::vector<VariateSite> variate_sites(unsigned count) {
    std::vector<VariateSite> sites;
    for (unsigned i = 0; i + 1 < count; ++i) sites.push_back({bigrams(1, i)});
    sites.push_back({bigrams(2, count)});
    return sites;
}

// How much worse the others' language ends with the last site, as it was trained or lying, than without it.
double variate_cost(unsigned count, const StrategySpec& strategy, const VariateLie& lie, double factor = 1) {
    std::vector<VariateSite> sites = variate_sites(count);
    const std::vector<VariateSite> others(sites.begin(), sites.end() - 1);
    sites.back().lie = lie;
    sites.back().factor = factor;
    const Weights truth = bigrams(1, 999);
    return perplexity(VariateFederation{strategy}.run(sites), truth) /
           perplexity(VariateFederation{defended(false)}.run(others), truth);
}

struct NamedLie {
    const char* name;
    VariateLie lie;
    double costs, undefended;  // of two sites, and the same without clip and drop
};

constexpr double kNothingLeft = 1e6;

const std::vector<NamedLie>& variate_lies() {
    static const std::vector<NamedLie> lies = {
        {"honest", {}, 1.41, 1.41},
        {"-1 times its own", own_times(-1), 1.17, 1.016},
        {"-1.4 times", own_times(-1.4), 1.20, 1.137},
        {"-2.5 times", own_times(-2.5), 1.306, 3.31},
        {"-9 times", own_times(-9), 1.41, 69.3},
        {"9 times", own_times(9), 1.41, 2.57},
        {"zero", own_times(0), 1.41, 1.41},
        {"a millionth", own_times(1e-6), 1.41, 1.20},
        {"noise of its norm", noise_of_its_norm, 1.36, 1.62},
        {"the others' turned around", against_the_others(1), 1.42, 1.42},
        {"the others' turned around, 1.4 times", against_the_others(1.4), 1.49, 1.49},
        {"the others' turned around, 2.3 times", against_the_others(2.3), 1.667, 1.65},
        {"the others' turned around, 9 times", against_the_others(9), 1.41, kNothingLeft}};
    return lies;
}

TEST(VariatesLiarTest, OneLiarCostsWhatTheThreatsSay) {
    for (const NamedLie& one : variate_lies()) {
        EXPECT_NEAR(variate_cost(2, defended(true), one.lie) / one.costs, 1, 0.02) << one.name << ", of two";
        EXPECT_NEAR(std::min(variate_cost(2, undefended(), one.lie), kNothingLeft) / one.undefended, 1, 0.02)
            << one.name << ", of two without clip and drop";
        EXPECT_NEAR(variate_cost(3, defended(true), one.lie), 1, 0.02) << one.name << ", of three";
    }
}

TEST(VariatesLiarTest, WhoLiesInItsChangeTooCostsWhatTheThreatsSay) {
    constexpr double kFactorsOfIts[] = {1, -1, -2.5, -9, 9};
    struct Costs {
        unsigned count;
        std::vector<double> in_its_change, in_both;  // its change times each of kFactorsOfIts
    };
    for (const Costs& row : {Costs{2, {1.41, 1.59, 2.417, 1, 1}, {1.667, 1.644, 2.646, 1, 1}},
                             Costs{3, {1.01, 1, 1, 1, 1}, {1.01, 1, 1, 1, 1}}})
        for (std::size_t i = 0; i < std::size(kFactorsOfIts); ++i) {
            double worst = 0;
            for (const NamedLie& one : variate_lies())
                worst = std::max(worst, variate_cost(row.count, defended(true), one.lie, kFactorsOfIts[i]));
            EXPECT_NEAR(variate_cost(row.count, defended(true), {}, kFactorsOfIts[i]) / row.in_its_change[i], 1, 0.02)
                << row.count << " sites, " << kFactorsOfIts[i] << " times its change";
            EXPECT_NEAR(worst / row.in_both[i], 1, 0.02)
                << row.count << " sites, " << kFactorsOfIts[i] << " times its change, and in its control variate";
        }
}

// Its lie is the round's only control variate, and later it makes its own as long as the mean has become.
TEST(VariatesLiarTest, WhoIsAloneInTheFirstRoundSilencesNobodyAfterIt) {
    for (const double first : {1e4, 1e30}) {
        double longest = 0;
        std::vector<VariateSite> sites = variate_sites(2);
        sites.front().since = 2;
        sites.back().lie = [&](const Weights& own, const Weights& others) {
            const double norm = std::sqrt(std::inner_product(own.begin(), own.end(), own.begin(), 0.0));
            const bool is_alone = std::ranges::all_of(others, [](double value) { return value == 0; });
            longest = is_alone ? first * norm : 0.999 * longest;
            return is_alone ? own_times(first)(own, others) : against_the_others(longest / norm)(own, others);
        };
        const Weights truth = bigrams(1, 999);
        const double cost = perplexity(VariateFederation{defended(true)}.run(sites), truth) /
                            perplexity(VariateFederation{defended(false)}.run({variate_sites(2).front()}), truth);
        EXPECT_LT(cost, 1.67) << first;
    }
}

}  // namespace
}  // namespace atl::aggregate
