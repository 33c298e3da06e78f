#include "tests/e2e/demo/report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::demo {
namespace {

Report good_report() {
    Report report;
    report.job = "job";
    report.wall_s = {{"train", 1.5}};
    report.base = {227, 258};
    report.rounds = {{1, "d1", {200, 220}, {}}, {2, "d2", {166, 181}, {}}};
    for (RoundReport& round : report.rounds)
        round.facilities = {{"leonardo", "it", 20, 40960, 5.0, 9000, {}, {125, 2197}},
                            {"karolina", "cs", 20, 40960, 5.0, 9000, {}, {2000, 130}}};
    report.pooled = {114, 127};
    report.pooled_adamw = {170, 190};
    report.samples = {{"it", "ciao"}, {"cs", "ahoj"}};
    return report;
}

bool all_hold(const std::vector<Verdict>& verdicts) {
    return std::all_of(verdicts.begin(), verdicts.end(), [](const Verdict& verdict) { return verdict.holds; });
}

TEST(ReportTest, AGoodFederationHoldsAllComparisons) {
    EXPECT_EQ(judge(good_report()).size(), 6U);
    EXPECT_TRUE(all_hold(judge(good_report())));
}

TEST(ReportTest, AGlobalModelThatIsNotThreeTimesBetterAbroadFails) {
    Report report = good_report();
    report.rounds.back().facilities[0].solo.cs = 500;
    const auto verdicts = judge(report);
    EXPECT_FALSE(verdicts[0].holds);
    EXPECT_TRUE(verdicts[1].holds);
}

TEST(ReportTest, ARoundThatIsMoreThanFivePercentWorseThanTheOneBeforeFails) {
    Report report = good_report();
    report.rounds.front().global = {160, 175};
    EXPECT_TRUE(judge(report)[4].holds) << "by 3.5 %";
    report.rounds.front().global = {150, 175};
    EXPECT_FALSE(judge(report)[4].holds);
    EXPECT_NE(judge(report)[4].text.find("round 2"), std::string::npos) << judge(report)[4].text;
}

TEST(ReportTest, ARoundInTheMiddleThatWasNotMeasuredFails) {
    Report report = good_report();
    report.rounds.push_back(report.rounds.back());
    report.rounds[1].global = {};
    EXPECT_FALSE(judge(report)[4].holds);
}

TEST(ReportTest, AFederationThatIsWorseThanPooledAdamwFails) {
    Report report = good_report();
    report.pooled_adamw = {167, 181};
    EXPECT_TRUE(judge(report)[5].holds);
    report.pooled_adamw = {165, 181};
    EXPECT_FALSE(judge(report)[5].holds);
}

TEST(ReportTest, AnUnmeasuredPerplexityFailsInsteadOfPassing) {
    Report report = good_report();
    report.rounds.back().global = {};
    EXPECT_FALSE(all_hold(judge(report)));
}

TEST(ReportTest, TheJsonHasTheAgreedKeysAndNullForWhatWasNotMeasured) {
    Report report = good_report();
    report.pooled = {};
    const json::Json out = to_json(report);
    EXPECT_EQ(out["rounds"][1]["facilities"][0]["solo"]["cs"], 2197);
    EXPECT_EQ(out["rounds"][0]["global"]["it"], 200);
    EXPECT_EQ(out["wall_s"]["train"], 1.5);
    EXPECT_TRUE(out["pooled"]["it"].is_null());
}

TEST(ReportTest, TheTableHasARowARound) {
    const std::string table = to_table(good_report());
    EXPECT_NE(table.find("2197.0"), std::string::npos);
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 7);  // two header lines, base, two rounds, two pooled
}

}  // namespace
}  // namespace atl::demo
