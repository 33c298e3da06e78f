#include "shared/aggregate/defence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace atl::aggregate {
namespace {

StrategySpec usual_strategy() {
    StrategySpec spec;
    spec.clip = 1.4;
    spec.drop = 3;
    return spec;
}

std::vector<double> parts_of(const std::vector<Change>& changes, const std::vector<EarlierNorm>& earlier = {}) {
    return parts_that_count(changes, earlier, usual_strategy());
}

using Parts = std::vector<double>;

TEST(DefenceTest, OfThreeTheMedianSaysWhatIsUsual) {
    EXPECT_EQ(parts_of({{20}, {22}, {25}}), (Parts{1, 1, 1}));
    EXPECT_EQ(parts_of({{20}, {22}, {30.7}}), (Parts{1, 1, 1})) << "below 1.4 times";
    EXPECT_EQ(parts_of({{20}, {22}, {44}}), (Parts{1, 1, 0.7}));
    EXPECT_EQ(parts_of({{20}, {22}, {66}})[2], 1.4 / 3) << "three times";
    EXPECT_EQ(parts_of({{20}, {22}, {67}}), (Parts{1, 1, 0}));
    EXPECT_EQ(parts_of({{1}, {2}, {3}, {4}}), (Parts{1, 1, 2.8 / 3, 2.8 / 4})) << "of an even number the lower one";
}

TEST(DefenceTest, ASiteThatHardlyMovesShrinksNobody) {
    EXPECT_EQ(parts_of({{1e-9}, {20}, {24}}), (Parts{1, 1, 1}));
    EXPECT_EQ(parts_of({{0}, {20}, {400}}), (Parts{1, 1, 1})) << "of two neither says what is usual for the other";
    EXPECT_EQ(parts_of({{1e-9}, {20}}), (Parts{1, 1}));
    EXPECT_EQ(parts_of({{0}, {0}, {5}}), (Parts{1, 1, 1}));
    std::vector<EarlierNorm> earlier;
    for (int round = 1; round <= 10; ++round) {
        EXPECT_EQ(parts_of({{1e-9}, {20}}, earlier), (Parts{1, 1})) << "round " << round;
        earlier.push_back({1e-9, 1, 0});
        earlier.push_back({20, 1, 1});
    }
    const std::vector<EarlierNorm> alone(10, EarlierNorm{1e-9, 1, 0});
    EXPECT_EQ(parts_of({{1e-9}, {20}}, alone), (Parts{1, 1})) << "who comes late is not held against the other's";
}

TEST(DefenceTest, OfTwoARoundIsHeldAgainstThoseBefore) {
    const std::vector<EarlierNorm> earlier = {{20, 1, 0}, {22, 1, 1}, {19, 1, 0}, {21, 1, 1}};
    EXPECT_EQ(parts_of({{20}, {25}}, earlier), (Parts{1, 1}));
    EXPECT_EQ(parts_of({{20}, {198}}, earlier), (Parts{1, 0}));
    EXPECT_DOUBLE_EQ(parts_of({{20}, {44}}, earlier)[1], 1.4 * 22 / 44);
    EXPECT_EQ(parts_of({{198}}, {{20, 1, 0}, {22, 1, 0}, {19, 1, 0}}), Parts{1}) << "who is alone harms nobody else";
}

TEST(DefenceTest, NoChangeIsLongerThanItsOptimizerCanMakeIt) {
    EXPECT_EQ(parts_of({{20, 1, 100}, {90, 1, 100}}), (Parts{1, 1}));
    EXPECT_EQ(parts_of({{20, 1, 100}, {200, 1, 100}}), (Parts{1, 0.5}));
    EXPECT_EQ(parts_of({{20, 1, 100}, {301, 1, 100}}), (Parts{1, 0}));
    // 0.1 for each of 10,000 elements, and what decays and is rounded of the base.
    EXPECT_DOUBLE_EQ(find_reach({.element_max = 0.1, .decay = 0.01}, 10'000, 50), 10 + 0.01 * 50 + 50.0 / 256);
    EXPECT_EQ(find_reach({.decay = 0.01}, 10'000, 50), 0);
    EXPECT_EQ(find_reach({.norm_max = 7, .decay = 0.01}, 10'000, 256), 7 + 2.56 + 1) << "SGD's";
}

// What AdamW made of the demo's Italian rows in so many steps, five of them of warm-up.
TEST(DefenceTest, HonestSitesOfOtherEffortsCountWhole) {
    const std::vector<Change> measured = {{2.2, 1.2}, {9.4, 8}, {22, 28}, {42.8, 98}, {84.6, 298}};
    for (const Change& one : measured)
        for (const Change& other : measured)
            for (const Change& third : {one, other})
                EXPECT_EQ(parts_of({one, other, third}), (Parts{1, 1, 1})) << one.effort << " " << other.effort;
    EXPECT_EQ(parts_of({{10, 1}, {100, 10}, {10, 1}}), (Parts{1, 1, 1})) << "all steps in one direction";
    EXPECT_EQ(parts_of({{10, 1}, {100, 10}, {100, 10}}), (Parts{1, 1, 1}));
    EXPECT_EQ(parts_of({{10, 1}, {301, 10}, {10, 1}}), (Parts{1, 0, 1}));
}

TEST(DefenceTest, HalfOfTheSitesHaveToLieTogetherToSayWhatIsUsual) {
    EXPECT_EQ(parts_of({{42.8}, {42.6}, {1e-6}, {43}}), (Parts{1, 1, 1, 1})) << "one of four does not";
    EXPECT_EQ(parts_of({{42.8}, {42.6}, {1e-6}, {1e-6}}), (Parts{0, 0, 1, 1})) << "two of four do";
    EXPECT_EQ(parts_of({{20}, {21}, {22}, {23}, {1e-6}, {1e-6}}), (Parts{1, 1, 1, 1, 1, 1}));
    EXPECT_EQ(parts_of({{20}, {21}, {200}, {200}}), (Parts{1, 1, 0, 0})) << "by going far two of four do not";
}

TEST(DefenceTest, MoreDataThanTheOthersSaveFromTheDropButNotFromTheClip) {
    const auto claims = [](double norm) { return Change{.norm = norm, .claimed = 10}; };
    EXPECT_EQ(parts_of({claims(12), {10}, {10}}), (Parts{1, 1, 1}));
    EXPECT_EQ(parts_of({claims(45), {10}, {10}})[0], 14.0 / 45) << "an honest one grows as the root of its steps";
    EXPECT_EQ(parts_of({claims(90), {10}, {10}})[0], 14.0 / 90) << "so does this, nine times its change";
    EXPECT_EQ(parts_of({claims(301), {10}, {10}})[0], 0);
    EXPECT_EQ(parts_of({{.norm = 90, .reach = 30, .claimed = 4}, {20}}), (Parts{30.0 / 90, 1}))
        << "of two by its reach";
}

TEST(DefenceTest, AWeightIsBelievedAsFarAsItIsUsual) {
    const auto weights = [](std::vector<double> said, const std::vector<double>& tokens) {
        std::vector<Assignment> assigned;
        for (const double one : tokens) assigned.push_back({.tokens = one});
        return believable_weights(std::move(said), assigned);
    };
    EXPECT_EQ(weights({25, 25, 100}, {100, 100, 100}), (Parts{25, 25, 25}));
    EXPECT_EQ(weights({20, 25, 100}, {100, 100, 100}), (Parts{20, 25, 25}));
    EXPECT_EQ(weights({1, 90}, {100, 100}), (Parts{1, 1})) << "of two both weigh alike";
    EXPECT_EQ(weights({100, 1000, 100}, {100, 1000, 100}), (Parts{100, 1000, 100})) << "ten times the steps";
    EXPECT_EQ(weights({0, 50, 60}, {100, 100, 100}), (Parts{0, 50, 50}));
    EXPECT_EQ(weights({0, 0}, {100, 100}), (Parts{0, 0}));
    EXPECT_EQ(weights({25, 100}, {100, 0}), (Parts{25, 100})) << "nobody knows what was assigned";
    EXPECT_EQ(weights({25, 100}, {}), (Parts{25, 100}));
}

TEST(DefenceTest, WhatIsTurnedOffShortensNothing) {
    StrategySpec spec;
    spec.drop = 3;
    EXPECT_EQ(parts_that_count(std::vector<Change>{{1}, {1}, {2.9}, {3.1}}, {}, spec), (Parts{1, 1, 1, 0}));
    spec = {};
    spec.clip = 2;
    EXPECT_EQ(parts_that_count(std::vector<Change>{{1}, {1}, {1}, {40}}, {}, spec), (Parts{1, 1, 1, 0.05}));
}

}  // namespace
}  // namespace atl::aggregate
