// What one lying site costs a federation that trains adapters and averages what they add (`product`): the last rows of
// the table of services/THREATS.md. The model is a table of bigrams that is all adapter, so that it learns what a
// product of this rank can hold of each language. liar_test.cpp plays the other strategies.
#include "shared/aggregate/testing/adapters.h"
#include "shared/aggregate/testing/bigram_model.h"

namespace atl::aggregate::of_adapters {
namespace {

constexpr std::size_t kRank = 8;
constexpr double kRate = 0.03;

StrategySpec product() {
    return parse_strategy({{"name", "product"}}).value();
}

StrategySpec undefended_product() {
    StrategySpec spec;
    spec.name = "product";
    return spec;
}

// As an adapter begins: it adds nothing yet.
Adapter new_adapter() {
    Adapter adapter = random_adapter(kTokens, kTokens, kRank, 1);
    std::fill(adapter.b.begin(), adapter.b.end(), 0.0F);
    adapter.scale.alpha = kRank;
    return adapter;
}

Weights widened(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

std::vector<float> narrowed(const Weights& values) {
    return {values.begin(), values.end()};
}

// What a site's training makes of the adapter.
Adapter train(const Adapter& start, const Weights& truth, double rate) {
    Adapter adapter = start;
    Weights a = widened(start.a), b = widened(start.b);
    AdamW of_a(a.size()), of_b(b.size());
    for (int step = 0; step < kSteps; ++step) {
        const Weights gradient = gradient_of(product_of(adapter), truth);  // alpha / rank is one
        Weights gradient_a(a.size()), gradient_b(b.size());
        for (std::size_t o = 0; o < kTokens; ++o)
            for (std::size_t k = 0; k < kRank; ++k)
                for (std::size_t c = 0; c < kTokens; ++c) {
                    gradient_b[o * kRank + k] += gradient[o * kTokens + c] * a[k * kTokens + c];
                    gradient_a[k * kTokens + c] += gradient[o * kTokens + c] * b[o * kRank + k];
                }
        of_a.update(a, gradient_a, rate);
        of_b.update(b, gradient_b, rate);
        adapter.a = narrowed(a);
        adapter.b = narrowed(b);
    }
    return adapter;
}

// So many times the change of each of its numbers.
Adapter times(double factor, const Adapter& base, const Adapter& honest) {
    Adapter update = base;
    for (const auto matrix : {&Adapter::a, &Adapter::b})
        for (std::size_t i = 0; i < (update.*matrix).size(); ++i)
            (update.*matrix)[i] +=
                static_cast<float>(factor * (static_cast<double>((honest.*matrix)[i]) - (base.*matrix)[i]));
    return update;
}

// What the adapter is after all rounds of sites with these bigrams, of which the last hands in so many times its
// change.
Adapter train_together(const StrategySpec& strategy, const std::vector<Weights>& sites, double factor = 1) {
    Adapter model = new_adapter();
    std::vector<EarlierNorm> earlier;
    for (int round = 1; round <= kRounds; ++round) {
        const double rate = kRate * rate_factor(round), effort = rate * kSteps;
        const std::vector<Assignment> assigned(sites.size(), {.effort = effort, .tokens = 100, .element_max = effort});
        std::vector<Adapter> updates;
        for (const Weights& truth : sites) updates.push_back(train(model, truth, rate));
        if (factor != 1) updates.back() = times(factor, model, updates.back());
        auto aggregator = Aggregator::plan(strategy, inputs_of(updates), std::vector<double>(sites.size(), 100), {},
                                           RoundBase{adapter_input("base", model)})
                              .value();
        const Prepared prepared = aggregator.prepare(totals_of(aggregator), assigned, earlier).value();
        for (std::size_t i = 0; i < prepared.figures.size(); ++i)
            earlier.push_back({prepared.figures[i].norm * prepared.figures[i].counted, effort, i});
        model = adapter_in(whole_file(aggregator, 0).value(), model);
    }
    return model;
}

// As LiarTest has it.
double cost(unsigned count, const StrategySpec& strategy, double factor) {
    std::vector<Weights> sites;
    for (unsigned i = 0; i + 1 < count; ++i) sites.push_back(bigrams(1, i));
    const Weights truth = bigrams(1, 999);
    const double alone = perplexity(product_of(train_together(undefended_product(), sites)), truth);
    sites.push_back(bigrams(2, count));
    return perplexity(product_of(train_together(strategy, sites, factor)), truth) / alone;
}

constexpr double kLost = 1e6;  // nothing is left of the model
constexpr double kLies[] = {1, -1, -2.5, -9, 9};

TEST(LiarProductTest, OneLiarCostsWhatTheThreatsSay) {
    const std::map<unsigned, std::vector<double>> rows = {
        {2, {1.47, 9.22, kLost, 1, 2}}, {3, {1, 1, 1, 1, 1}}, {8, {1, 1, 1, 1, 1}}};
    for (const auto& [count, costs] : rows)
        for (std::size_t i = 0; i < std::size(kLies); ++i)
            EXPECT_NEAR(std::min(cost(count, product(), kLies[i]), kLost) / costs[i], 1, 0.02)
                << count << " sites, " << kLies[i] << " times its change";
}

TEST(LiarProductTest, TheAdapterLearnsTheLanguage) {
    const Weights truth = bigrams(1, 999);
    const Adapter learnt = train_together(undefended_product(), {bigrams(1, 0), bigrams(1, 1)});
    EXPECT_NEAR(perplexity(product_of(new_adapter()), truth), kTokens, 1e-9);
    EXPECT_LT(perplexity(product_of(learnt), truth), 0.6 * kTokens);
}

}  // namespace
}  // namespace atl::aggregate::of_adapters
