#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace atl::cli {

// What a job's events tell, gathered for `job watch`. Events may come twice and may be of a kind we do not know.
class JobCourse {
  public:
    // `job`: the resource as GET /v1/jobs/{id} gives it.
    explicit JobCourse(const nlohmann::json& job);

    // Takes one event; returns a line for people, empty if it is not worth one.
    std::string take(const nlohmann::json& event);

    bool ended() const { return !final_state_.empty(); }
    const std::string& final_state() const { return final_state_; }  // "completed", "failed", "cancelled"
    const std::string& error() const { return error_; }

    // The whole picture, lines of text: the current round by facility, and perplexities of the base, of the last
    // rounds' global models and of the newest updates.
    std::string picture() const;

  private:
    struct Work {
        std::string state;  // "running", "done", …
        std::int64_t step = 0;
        double loss = 0;
        double tokens_per_s = 0;
    };
    std::string take_task(const std::string& what, const nlohmann::json& data);
    std::string take_evaluated(const nlohmann::json& data);
    std::string training_table() const;
    std::string perplexity_table() const;

    std::string name_;
    std::int64_t rounds_ = 0;
    std::int64_t steps_ = 0;  // of a task, 0 if not known
    std::int64_t round_ = 0;
    std::map<std::string, Work> training_;  // facility -> this round's task
    std::vector<std::string> sites_;        // columns: "dataset at facility"
    std::map<std::pair<std::int64_t, std::string>, std::map<std::string, double>> perplexity_;  // (round, model), site
    std::string final_state_;
    std::string error_;
};

}  // namespace atl::cli
