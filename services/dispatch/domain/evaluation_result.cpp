#include "services/dispatch/domain/evaluation_result.h"

#include "services/dispatch/domain/attempt_end.h"

namespace atl::dispatch {
namespace {

using json::Json;

Json failed_item(const EvaluatedModel& model, std::int64_t exit_code, const std::string& reason) {
    const std::string error = exit_code_text(exit_code) + (reason.empty() ? "" : ": " + reason);
    return {{"model", model.digest}, {"which", model.which}, {"error", error}};
}

Json evaluated_item(const EvaluatedModel& model, const EvaluationLine& line) {
    Json item = {{"model", model.digest}, {"which", model.which}};
    const Json result = to_json(line);
    for (const char* key : {"loss", "perplexity", "tokens"}) item[key] = result.value(key, Json());
    return item;
}

}  // namespace

Result<Json> evaluation_result(const Task& task, const ModelFailures& failures) {
    const auto& evaluate = std::get<EvaluateParams>(task.params);
    const std::vector<EvaluatedModel>& models = evaluate.models;
    const std::vector<EvaluationLine>& results = task.attempt->results;
    if (results.size() != models.size())
        return internal_error("the trainer evaluated " + std::to_string(results.size()) + " of " +
                              std::to_string(models.size()) + " models");
    Json evaluations = Json::array(), failed = Json::array();
    for (std::size_t i = 0; i < models.size(); ++i) {
        if (results[i].failed_with) {
            const auto reason = failures.find(i);
            failed.push_back(
                failed_item(models[i], *results[i].failed_with, reason == failures.end() ? "" : reason->second));
            continue;
        }
        if (evaluate.tokens_max > 0 && results[i].tokens.value_or(0) > evaluate.tokens_max)
            return internal_error("the trainer says that it evaluated " + std::to_string(*results[i].tokens) +
                                  " tokens, but the dataset version has " + std::to_string(evaluate.tokens_max));
        evaluations.push_back(evaluated_item(models[i], results[i]));
    }
    if (evaluations.empty() && !failed.empty())
        return internal_error("no model could be evaluated: " + failed.front().at("error").get<std::string>());
    Json result = {{"dataset", evaluate.dataset}, {"evaluations", std::move(evaluations)}};
    if (!failed.empty()) result["failed"] = std::move(failed);
    return result;
}

Status add_result(std::vector<EvaluationLine>& results, const EvaluationLine& line, std::size_t models) {
    const std::size_t place = line.place ? static_cast<std::size_t>(*line.place) : results.size();
    if (place < results.size()) {
        results[place] = line;
        return {};
    }
    if (place >= models || results.size() >= models)
        return internal_error("there are results of more than the " + std::to_string(models) +
                              " models that were to be evaluated");
    results.push_back(line);
    return {};
}

std::vector<std::size_t> failed_models(const Task& task, const std::vector<std::string>& lines) {
    const auto* evaluate = std::get_if<EvaluateParams>(&task.params);
    if (evaluate == nullptr) return {};
    std::vector<EvaluationLine> results = task.attempt->results;
    for (const std::string& line : lines) {
        const auto result = read_evaluation_line(line);
        if (result.ok() && *result && !add_result(results, **result, evaluate->models.size()).ok()) break;
    }
    std::vector<std::size_t> failed;
    for (std::size_t place = 0; place < results.size(); ++place)
        if (results[place].failed_with) failed.push_back(place);
    return failed;
}

std::string tell_failed_models(const Task& task) {
    const auto* evaluate = std::get_if<EvaluateParams>(&task.params);
    if (evaluate == nullptr || !task.result.is_object()) return {};
    const auto failed = task.result.find("failed");
    if (failed == task.result.end() || !failed->is_array() || failed->empty()) return {};
    const Json& first = failed->front();
    return task.facility + ": " + std::to_string(failed->size()) + " of " + std::to_string(evaluate->models.size()) +
           " models " + (failed->size() == 1 ? "was" : "were") + " not evaluated: " + first.value("which", "") + ": " +
           first.value("error", "");
}

}  // namespace atl::dispatch
