#include "tests/e2e/demo/job_progress.h"

#include <fmt/format.h>

namespace atl::demo {

using json::Json;

std::string JobProgress::take(const Json& event) {
    const std::string type = event.value("type", "");
    const Json& data = event.at("data");
    if (type == "atoll.task.progress.v1") return take_progress(data);
    if (type == "atoll.task.done.v1" && data.value("kind", "") == "train") return take_trained(data);
    if (type == "atoll.task.done.v1" && data.value("kind", "") == "evaluate") take_results(data);
    if (type == "atoll.round.closed.v1")
        return fmt::format("round {:>2}  aggregating {} updates", data.at("round").get<std::int64_t>(),
                           data.at("updates").size());
    if (type == "atoll.round.evaluated.v1") return evaluated_line(data.at("round"));
    if (type == "atoll.task.failed.v1" || type == "atoll.job.failed.v1") return data.value("error", type);
    return {};
}

std::string JobProgress::take_progress(const Json& data) {
    Training& training = rounds_[data.at("round").get<std::int64_t>()].training[data.at("facility")];
    const auto step = data.at("step").get<std::int64_t>();
    if (step <= training.steps) {
        if (step == 1) training = {};  // another attempt begins again
        if (step != 1) return {};
    }
    training.steps = step;
    training.loss_sum += data.at("loss").get<double>();
    return {};
}

std::string JobProgress::take_trained(const Json& data) {
    const auto round = data.at("round").get<std::int64_t>();
    const std::string facility = data.at("facility");
    Training& training = rounds_[round].training[facility];
    const Json& result = data.at("result");
    training.tokens = result.at("tokens").get<std::int64_t>();
    training.tokens_per_s = result.at("metrics").value("tokens_per_s", 0.0);
    return fmt::format("round {:>2}  {:<9} trained {} steps, mean loss {:.3f}, mean {:.0f} tokens/s", round, facility,
                       training.steps, training.mean_loss(), training.tokens_per_s);
}

void JobProgress::take_results(const Json& data) {
    Round& round = rounds_[data.at("round").get<std::int64_t>()];
    const std::string& language = languages_.at(data.at("dataset"));
    for (const Json& evaluation : data.at("result").at("evaluations")) {
        const std::string which = evaluation.at("which");
        round.perplexity[which].of(language) = evaluation.at("perplexity").get<double>();
        if (which == "global") round.model = evaluation.at("model");
    }
}

std::string JobProgress::evaluated_line(std::int64_t number) {
    std::string line = fmt::format("round {:>2}  perplexity (it, cs):", number);
    for (const auto& [which, perplexity] : rounds_[number].perplexity)
        line += fmt::format("  {} {:.1f}, {:.1f}", which, perplexity.it, perplexity.cs);
    return line;
}

}  // namespace atl::demo
