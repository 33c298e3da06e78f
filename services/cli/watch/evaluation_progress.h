#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace atl::cli {

// "all 3 evaluations failed: REASON", of a round's "failed_evaluations" or its event's; empty: none did.
std::string failed_evaluations_text(const nlohmann::json& failed);

// Which models are evaluated where at the moment, for `job watch`.
class EvaluationProgress {
  public:
    // `spec`: a job's specification as GET /v1/jobs/{id} gives it, with its "evaluation".
    explicit EvaluationProgress(const nlohmann::json& spec);

    // The round's models are there (0: the base model): they are to be evaluated on every dataset.
    void begin(std::int64_t round);
    // An event of an evaluation task: "running", "evaluating", "retrying", "done", …
    void apply(const std::string& what, const nlohmann::json& data);
    // All of the round's results are there, or no longer waited for.
    void end(std::int64_t round) {
        std::erase_if(work_, [&](const auto& work) { return work.first.first == round; });
    }

    std::size_t dataset_count() const { return columns_.size(); }
    // A line a round, then a row a dataset that is not done; empty when nothing is evaluated.
    std::string table(std::size_t width) const;

  private:
    struct Work {
        std::string state = "waiting";
        std::int64_t models = 0;  // 0: not known yet
        std::int64_t models_done = 0;
        std::string model;  // the one it is at
    };
    std::vector<std::string> columns_;                           // "dataset at facility"
    std::map<std::pair<std::int64_t, std::string>, Work> work_;  // (round, column)
};

}  // namespace atl::cli
