#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "shared/json/json.h"
#include "tests/e2e/demo/report.h"

namespace atl::demo {

// What a job's events tell of its rounds, gathered as they come. Events may come twice.
class JobProgress {
  public:
    // languages: data set name -> "it" or "cs".
    explicit JobProgress(std::map<std::string, std::string> languages) : languages_(std::move(languages)) {}

    // Takes one event and returns a line for people, empty if it is not worth one.
    std::string take(const json::Json& event);

    struct Training {
        std::int64_t steps = 0;
        std::int64_t tokens = 0;
        double loss_sum = 0;
        double tokens_per_s = 0;
        double mean_loss() const { return steps == 0 ? 0 : loss_sum / static_cast<double>(steps); }
    };
    struct Round {
        std::string model;                             // the global version's digest
        std::map<std::string, Training> training;      // facility ->
        std::map<std::string, Perplexity> perplexity;  // "global" or "base" ->
    };
    const std::map<std::int64_t, Round>& rounds() const { return rounds_; }

  private:
    std::string take_progress(const json::Json& data);
    std::string take_trained(const json::Json& data);
    void take_results(const json::Json& data);
    std::string evaluated_line(std::int64_t number);

    std::map<std::string, std::string> languages_;
    std::map<std::int64_t, Round> rounds_;
};

}  // namespace atl::demo
