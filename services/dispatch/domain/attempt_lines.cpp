#include "services/dispatch/domain/attempt_lines.h"

#include <limits>

#include "services/dispatch/domain/evaluation_result.h"
#include "shared/site/attempt_files.h"

namespace atl::dispatch {
namespace {

// The last step that a training can make. With epochs each step takes at least one row.
std::int64_t last_possible_step(const TrainParams& train) {
    constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max();
    const std::int64_t steps = train.training.value("steps", std::int64_t{0});
    const std::int64_t epochs = train.training.value("epochs", std::int64_t{0});
    if (steps > 0) return steps;
    return epochs > 0 && train.rows > 0 && epochs <= kNoBound / train.rows ? epochs * train.rows : kNoBound;
}

}  // namespace

Status read_lines(Task& task, const std::vector<std::string>& lines, std::vector<StepLine>& steps) {
    Attempt& attempt = *task.attempt;
    const auto* train = std::get_if<TrainParams>(&task.params);
    const std::int64_t step_max = train != nullptr ? last_possible_step(*train) : 0;
    const auto read_training = [&](const std::string& text) -> Status {
        ATOLL_TRY(const TrainingLine line, read_training_line(text));
        if (const auto* summary = std::get_if<SummaryLine>(&line)) attempt.summary = *summary;
        const auto* step = std::get_if<StepLine>(&line);
        if (step != nullptr && step->step <= step_max) steps.push_back(*step);
        return {};
    };
    const auto read_evaluation = [&](const std::string& text, std::size_t models) -> Status {
        ATOLL_TRY(const auto result, read_evaluation_line(text));
        return result ? add_result(attempt.results, *result, models) : Status();
    };
    for (const std::string& line : lines) {
        ++attempt.log_lines;
        Status read;
        if (train != nullptr) read = read_training(line);
        if (const auto* evaluate = std::get_if<EvaluateParams>(&task.params))
            read = read_evaluation(line, evaluate->models.size());
        if (!read.ok())
            return internal_error("line " + std::to_string(attempt.log_lines) + " of " + site::kStandardOutput + ": " +
                                  describe(read.error()));
    }
    return {};
}

}  // namespace atl::dispatch
