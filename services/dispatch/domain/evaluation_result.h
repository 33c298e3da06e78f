#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "services/dispatch/domain/task.h"

// What an evaluation of several models has come to. Each model is evaluated by a command of its own, and one that
// cannot be evaluated costs the others nothing. Pure.
namespace atl::dispatch {

// Why models could not be evaluated, by their places among the task's models.
using ModelFailures = std::map<std::size_t, std::string>;

// The task's result: {"dataset", "evaluations": [{"model", "which", "loss", "perplexity", "tokens"}]} and, where some
// models failed, "failed": [{"model", "which", "error"}]. `failures`: reasons that are known beside the exit code.
// kInternal: the attempt has not told of each model, or has a result of none, or one that cannot be.
Result<json::Json> evaluation_result(const Task& task, const ModelFailures& failures);

// Adds a line to the results of so many models. One that has a place takes the result of that place away, as a command
// may fail after it printed one. kInternal: there would be more results than models.
Status add_result(std::vector<EvaluationLine>& results, const EvaluationLine& line, std::size_t models);

// The places of the models that could not be evaluated, as far as the attempt and its new lines tell.
std::vector<std::size_t> failed_models(const Task& task, const std::vector<std::string>& lines);

// Of an evaluation that is done: "karolina: 1 of 3 models was not evaluated: global: exit code 2"; empty: each was.
std::string tell_failed_models(const Task& task);

}  // namespace atl::dispatch
