#include "services/cli/watch/evaluation_progress.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "services/cli/output.h"
#include "services/cli/rest.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kRowsMax = 8;  // it must fit on a small terminal

std::string column_name(const json& place) {
    return text(place, "dataset") + " at " + text(place, "facility");
}

std::string round_name(std::int64_t round) {
    return round == 0 ? "the base model" : fmt::format("round {}", round);
}

}  // namespace

std::string failed_evaluations_text(const json& failed) {
    if (!failed.is_object()) return {};
    const std::int64_t count = failed.value("count", std::int64_t{0}), of = failed.value("of", std::int64_t{0});
    const std::int64_t partly = failed.value("partly", std::int64_t{0});
    const std::string reason = text(failed, "reason");
    const std::string of_some = partly == 0       ? ""
                                : partly == count ? " for some of the models"
                                                  : fmt::format(", {} for some of the models", partly);
    return (count < of ? fmt::format("{} of {} evaluations failed", count, of)
            : of == 1  ? std::string("its evaluation failed")
                       : fmt::format("all {} evaluations failed", of)) +
           of_some + (reason.empty() ? "" : ": " + reason);
}

EvaluationProgress::EvaluationProgress(const json& spec) {
    for (const json& place : spec.value("evaluation", json::object()).value("at", json::array()))
        columns_.push_back(column_name(place));
}

void EvaluationProgress::begin(std::int64_t round) {
    for (const std::string& column : columns_) work_[{round, column}];
}

void EvaluationProgress::apply(const std::string& what, const json& data) {
    const auto at = work_.find({data.value("round", std::int64_t{0}), column_name(data)});
    if (at == work_.end()) return;  // a round that has ended came again
    Work& work = at->second;
    work.state = what == "evaluating" ? "running" : what == "retrying" ? "waiting" : what;
    if (what == "evaluating") {
        work.models = data.value("models", std::int64_t{0});
        work.models_done = data.value("models_done", std::int64_t{0});
        work.model = text(data, "model");
    }
}

std::string EvaluationProgress::table(std::size_t width) const {
    std::map<std::int64_t, std::pair<std::size_t, std::size_t>> ended;  // round -> datasets that are done, datasets
    Table table({"evaluating", cut("on"), "state", "models", cut("now")});
    std::size_t rows = 0;
    for (const auto& [key, work] : work_) {
        const bool is_over = work.state == "done" || work.state == "failed" || work.state == "cancelled";
        ended[key.first].first += is_over ? 1 : 0;
        ++ended[key.first].second;
        if (is_over || ++rows > kRowsMax) continue;
        const bool began = work.models > 0;
        table.add({round_name(key.first), key.second, work.state,
                   began ? fmt::format("{}/{}", work.models_done, work.models) : "", began ? work.model : ""});
    }
    std::string lines;
    for (const auto& [round, counts] : ended)
        lines += fmt::format("evaluating {}: {} of {} datasets done\n", round_name(round), counts.first, counts.second);
    return rows == 0 ? lines : lines + table.text(width);
}

}  // namespace atl::cli
