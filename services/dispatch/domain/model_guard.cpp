#include "services/dispatch/domain/model_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace atl::dispatch {
namespace {

using json::Json;

constexpr double kWorse = 1.5;             // at a majority
constexpr double kMuchWorse = 3;           // at one of two
constexpr double kLonger = 1.4;            // from here on `clip` shortens an update
constexpr std::size_t kSitesNamedMax = 8;  // the reason has to fit into an event, and before people
constexpr std::size_t kLookedAtEach = 16;  // participants up to which each evaluation is looked at as it comes

std::vector<const Participant*> judges(const JobView& job) {
    std::vector<const Participant*> left;
    for (const Participant& one : job.spec.participants)
        if (!is_quarantined(job, one.data.facility)) left.push_back(&one);
    return left;
}

// What a participant's evaluation in a round says of its first model, the base or the round's own.
std::optional<double> perplexity(const JobView& job, std::int64_t round, const std::string& model,
                                 const DatasetCopy& data) {
    for (const Task& task : job.tasks) {
        const auto* evaluate = std::get_if<EvaluateParams>(&task.params);
        if (evaluate == nullptr || task.round != round || task.state != TaskState::kDone) continue;
        if (task.facility != data.facility || evaluate->dataset != data.dataset) continue;
        const auto found = task.result.find("evaluations");
        if (found == task.result.end() || found->empty() || !found->front().is_object()) return std::nullopt;
        const Json& first = found->front();
        if (first.value("model", Json()) != model || !first.contains("perplexity")) return std::nullopt;
        const Json& number = first.at("perplexity");
        return number.is_number() ? number.get<double>() : std::numeric_limits<double>::infinity();
    }
    return std::nullopt;
}

// Beside the model that the round began with.
std::vector<Judgement> judge(const JobView& job, const Round& round) {
    std::vector<Judgement> judgements;
    for (const Participant* one : judges(job)) {
        const auto before = perplexity(job, round.parent, round.base, one->data);
        const auto after = perplexity(job, round.number, round.version, one->data);
        if (before && after && std::isfinite(*before))
            judgements.push_back({one->data.facility, *before, *after, round.parent});
    }
    return judgements;
}

// Each beside the best model that its participant has seen.
std::vector<Judgement> beside_the_best(const JobView& job, std::vector<Judgement> judgements) {
    for (Judgement& one : judgements) {
        const auto record = job.records.find(one.facility);
        if (record == job.records.end() || !(record->second.best_perplexity > 0)) continue;
        if (record->second.best_perplexity >= one.before) continue;
        one.before = record->second.best_perplexity;
        one.at_round = record->second.best_round;
    }
    return judgements;
}

std::int64_t count_worse(const std::vector<Judgement>& judgements, double times) {
    return std::count_if(judgements.begin(), judgements.end(),
                         [times](const Judgement& one) { return one.times() >= times; });
}

bool is_spoiled(const JobView& job, const std::vector<Judgement>& judgements) {
    const std::size_t count = judges(job).size();
    if (2 * count_worse(judgements, kWorse) > static_cast<std::int64_t>(count)) return true;
    return count == 2 && count_worse(judgements, kMuchWorse) > 0;
}

// The newest round whose model all of those who find the new one worse found better.
std::int64_t good_round(const JobView& job, const std::vector<Judgement>& judgements) {
    const double times = judges(job).size() == 2 && 2 * count_worse(judgements, kWorse) <= 2 ? kMuchWorse : kWorse;
    std::int64_t good = std::numeric_limits<std::int64_t>::max();
    for (const Judgement& one : judgements)
        if (one.times() >= times) good = std::min(good, one.at_round);
    return good;
}

bool is_judged(const JobView& job, const Round& round) {
    return job.spec.pauses_when_worse() && round.number > job.judged_until && round.number > 0 &&
           round.state == RoundState::kClosed;
}

std::string shown(double perplexity) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", perplexity);
    return text;
}

Json number_or_null(double number) {
    return std::isfinite(number) ? Json(number) : Json();
}

double number_of(const Json& one, const char* key, double otherwise) {
    const auto found = one.find(key);
    return found != one.end() && found->is_number() ? found->get<double>() : otherwise;
}

}  // namespace

std::optional<SpoiledModel> find_spoiled_model(const JobView& job) {
    for (const Round& round : job.closed) {
        if (!is_judged(job, round)) continue;
        const auto judgements = judge(job, round);
        for (const auto& beside : {judgements, beside_the_best(job, judgements)})
            if (is_spoiled(job, beside)) return SpoiledModel{round, good_round(job, beside), beside};
    }
    return std::nullopt;
}

std::string find_outlier(const Round& round) {
    if (round.contributions.size() < 2) return {};
    // The facilities by a figure of their updates, the least first.
    const auto sorted_by = [&](const char* key, double otherwise) {
        std::vector<std::pair<double, std::string>> sorted;
        for (const Json& one : round.contributions)
            sorted.emplace_back(number_of(one, key, otherwise), one.value("facility", ""));
        std::sort(sorted.begin(), sorted.end());
        return sorted;
    };
    const auto longest = [&](const char* key) {
        const auto norms = sorted_by(key, 0);
        return norms.back().first > kLonger * norms[norms.size() - 2].first ? norms.back().second : "";
    };
    const std::string variate = longest("control_variate_norm");
    if (const auto counted = sorted_by("counted", 1); counted.front().first < 1) {
        // Of two one may have been led astray by the other's control variate.
        const bool is_unclear = counted.size() == 2 && !variate.empty() && variate != counted.front().second;
        return is_unclear ? "" : counted.front().second;
    }
    const auto cosines = sorted_by("cosine", 1);
    if (cosines.size() > 2 && cosines.front().first <= kOpposed) return cosines.front().second;
    return variate.empty() ? longest("norm") : variate;
}

std::string describe(const JobView& job, const SpoiledModel& spoiled) {
    std::string why = "the model of round " + std::to_string(spoiled.round.number) + " is worse than that of round " +
                      std::to_string(spoiled.good_round);
    for (std::size_t i = 0; i < spoiled.judgements.size() && i < kSitesNamedMax; ++i) {
        const Judgement& one = spoiled.judgements[i];
        why += std::string(i == 0 ? ": " : ", ") + one.facility + " finds the perplexity " + shown(one.after) +
               " after " + shown(one.before);
    }
    if (spoiled.judgements.size() > kSitesNamedMax)
        why += ", and " + std::to_string(spoiled.judgements.size() - kSitesNamedMax) + " more have evaluated both";
    if (const std::string outlier = find_outlier(spoiled.round); !outlier.empty() && job.spec.participants.size() > 1)
        why += "; the update of " + outlier + " stands out";
    return why;
}

Json to_json(const JobView& job, const SpoiledModel& spoiled) {
    Json sites = Json::array();
    for (const Judgement& one : spoiled.judgements)
        sites.push_back(
            {{"facility", one.facility}, {"before", number_or_null(one.before)}, {"after", number_or_null(one.after)}});
    return {{"round", spoiled.round.number},          {"good_round", spoiled.good_round},
            {"version", spoiled.round.version},       {"sites", std::move(sites)},
            {"updates", spoiled.round.contributions}, {"outlier", find_outlier(spoiled.round)},
            {"reason", describe(job, spoiled)}};
}

std::map<std::string, Record> best_models(const JobView& job, const Round& round) {
    std::map<std::string, Record> changed;
    if (!is_judged(job, round)) return changed;
    for (const Judgement& one : judge(job, round)) {
        const auto found = job.records.find(one.facility);
        const Record known = found == job.records.end() ? Record() : found->second;
        Record best = known;
        for (const auto& [perplexity, number] : {std::pair(one.before, round.parent), {one.after, round.number}}) {
            if (best.best_perplexity > 0 && perplexity >= best.best_perplexity) continue;
            best.best_perplexity = perplexity;
            best.best_round = number;
        }
        if (best.best_perplexity != known.best_perplexity) changed[one.facility] = best;
    }
    return changed;
}

std::int64_t quiet_judgements(const JobView& job, const Round& round) {
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    if (!is_judged(job, round)) return kAll;
    const std::size_t count = judges(job).size();
    if (count <= kLookedAtEach) return 0;
    return static_cast<std::int64_t>(count / 2) - count_worse(beside_the_best(job, judge(job, round)), kWorse);
}

}  // namespace atl::dispatch
