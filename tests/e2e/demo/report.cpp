#include "tests/e2e/demo/report.h"

#include <fmt/format.h>

#include <cmath>

namespace atl::demo {
namespace {

constexpr double kAbroadRatioMin = 3.0;
constexpr double kPooledRatioMax = 1.0;
constexpr double kRoundRatioMax = 1.05;

json::Json rounded(double value, double unit) {
    if (std::isnan(value)) return nullptr;
    return std::round(value / unit) * unit;
}

json::Json to_json(const Perplexity& perplexity) {
    return {{"it", rounded(perplexity.it, 1e-4)}, {"cs", rounded(perplexity.cs, 1e-4)}};
}

json::Json to_json(const FacilityRound& facility) {
    return {{"name", facility.name},
            {"steps", facility.steps},
            {"tokens", facility.tokens},
            {"loss", rounded(facility.loss, 1e-6)},
            {"tokens_per_s", rounded(facility.tokens_per_s, 1e-1)},
            {"local", to_json(facility.local)},
            {"solo", to_json(facility.solo)}};
}

std::string cell(double value) {
    return std::isnan(value) ? fmt::format("{:>9}", "-") : fmt::format("{:>9.1f}", value);
}

std::string cells(const Perplexity& perplexity) {
    return cell(perplexity.it) + cell(perplexity.cs);
}

std::string abroad(const std::string& language) {
    return language == "it" ? "cs" : "it";
}

Verdict judge_abroad(const FacilityRound& facility, const Perplexity& global) {
    const std::string language = abroad(facility.language);
    const double ratio = facility.solo.of(language) / global.of(language);
    return {ratio >= kAbroadRatioMin,
            fmt::format("on {}, which {} does not hold, the global model is {:.1f}x better than {}'s solo model "
                        "({:.0f} against {:.0f}; at least {:.0f}x)",
                        language, facility.name, ratio, facility.name, global.of(language), facility.solo.of(language),
                        kAbroadRatioMin)};
}

Verdict judge_mean(const FacilityRound& facility, const Perplexity& global) {
    return {global.geometric_mean() < facility.solo.geometric_mean(),
            fmt::format("geometric mean of both languages: global {:.0f}, solo {} {:.0f}", global.geometric_mean(),
                        facility.name, facility.solo.geometric_mean())};
}

// Of the round that got worst.
Verdict judge_rounds(const Report& report) {
    double worst = 0;
    std::int64_t at = 0;
    for (std::size_t i = 1; i < report.rounds.size(); ++i) {
        const double ratio = report.rounds[i].global.geometric_mean() / report.rounds[i - 1].global.geometric_mean();
        if (std::isnan(ratio))
            return {false, fmt::format("round {} or the one before it was not measured", report.rounds[i].round)};
        if (ratio <= worst) continue;
        worst = ratio;
        at = report.rounds[i].round;
    }
    if (report.rounds.size() < 2) return {true, "one round has none before it"};
    return {
        worst <= kRoundRatioMax,
        fmt::format("no round is much worse than the one before it: round {} comes to {:.2f}x its perplexity (at most "
                    "{:.2f}x)",
                    at, worst, kRoundRatioMax)};
}

Verdict judge_pooled(const Report& report) {
    const double ratio = report.rounds.back().global.geometric_mean() / report.pooled_adamw.geometric_mean();
    return {ratio <= kPooledRatioMax,
            fmt::format("{:.2f}x the perplexity of a model trained by AdamW on the pooled text (at most {:.2f}x), "
                        "{:.2f}x that of one by Muon",
                        ratio, kPooledRatioMax,
                        report.rounds.back().global.geometric_mean() / report.pooled.geometric_mean())};
}

}  // namespace

double Perplexity::geometric_mean() const {
    return std::sqrt(it * cs);
}

json::Json to_json(const Report& report) {
    json::Json out = {{"job", report.job},
                      {"wall_s", json::Json::object()},
                      {"base", to_json(report.base)},
                      {"rounds", json::Json::array()},
                      {"pooled", to_json(report.pooled)},
                      {"pooled_adamw", to_json(report.pooled_adamw)},
                      {"samples", report.samples}};
    for (const auto& [phase, seconds] : report.wall_s) out["wall_s"][phase] = rounded(seconds, 1e-2);
    for (const RoundReport& round : report.rounds) {
        json::Json facilities = json::Json::array();
        for (const FacilityRound& facility : round.facilities) facilities.push_back(to_json(facility));
        out["rounds"].push_back({{"round", round.round},
                                 {"model", round.model},
                                 {"global", to_json(round.global)},
                                 {"facilities", std::move(facilities)}});
    }
    return out;
}

std::string to_table(const Report& report) {
    if (report.rounds.empty()) return "no rounds\n";
    std::string names = fmt::format("{:>12} ", "");
    std::string languages = fmt::format("{:>12} ", "round");
    for (const FacilityRound& facility : report.rounds.front().facilities) {
        names += fmt::format("{:>18}  ", "solo " + facility.name);
        languages += fmt::format("{:>9}{:>9}  ", "it", "cs");
    }
    std::string table = names + fmt::format("{:>18}\n", "global") + languages + fmt::format("{:>9}{:>9}\n", "it", "cs");
    const std::string blank(20 * report.rounds.front().facilities.size(), ' ');
    table += fmt::format("{:>12} ", "base") + blank + cells(report.base) + "\n";
    for (const RoundReport& round : report.rounds) {
        table += fmt::format("{:>12} ", round.round);
        for (const FacilityRound& facility : round.facilities) table += cells(facility.solo) + "  ";
        table += cells(round.global) + "\n";
    }
    table += fmt::format("{:>12} ", "pooled AdamW") + blank + cells(report.pooled_adamw) + "\n";
    return table + fmt::format("{:>12} ", "pooled Muon") + blank + cells(report.pooled) + "\n";
}

std::vector<Verdict> judge(const Report& report) {
    if (report.rounds.empty()) return {{false, "no round was closed"}};
    std::vector<Verdict> verdicts;
    const RoundReport& last = report.rounds.back();
    for (const FacilityRound& facility : last.facilities) verdicts.push_back(judge_abroad(facility, last.global));
    for (const FacilityRound& facility : last.facilities) verdicts.push_back(judge_mean(facility, last.global));
    verdicts.push_back(judge_rounds(report));
    verdicts.push_back(judge_pooled(report));
    return verdicts;
}

}  // namespace atl::demo
