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

    // What GET /v1/jobs/{id} says of the job's state at the moment ("running", "paused"); returns a line for people,
    // empty if it is no news.
    std::string take_state(const std::string& state);

    bool ended() const { return !final_state_.empty(); }
    const std::string& final_state() const { return final_state_; }  // "completed", "failed", "cancelled"
    const std::string& error() const { return error_; }
    // True if a line that take() returned has told the reason already.
    bool has_told_error() const { return error_ == told_error_; }

    // The whole picture, lines of text: the current round by facility, and perplexities of the base, of the last
    // rounds' global models and of the newest updates.
    std::string picture() const;

  private:
    struct Work {
        std::string state;  // "running", "done", …
        std::int64_t attempt = 0;
        std::int64_t step = 0;
        double loss = 0;
        std::int64_t steps_seen = 0;
        double s_per_token = 0;   // summed over the steps seen: their tokens are as many in each
        double tokens_per_s = 0;  // of the whole training, when it is done
        double mean_tokens_per_s() const;
    };
    std::string take_task(const std::string& what, const nlohmann::json& data);
    void take_training(const std::string& what, const nlohmann::json& data);
    std::string take_end(const std::string& state);
    std::string take_evaluated(const nlohmann::json& data);
    std::string training_table() const;
    std::string perplexity_table() const;

    std::string name_;
    std::int64_t rounds_ = 0;
    std::size_t participants_ = 0;
    std::int64_t steps_ = 0;  // of a task, 0 if not known
    std::int64_t round_ = 0;
    std::map<std::string, Work> training_;  // facility -> this round's task
    std::vector<std::string> sites_;        // columns: "dataset at facility"
    std::map<std::pair<std::int64_t, std::string>, std::map<std::string, double>> perplexity_;  // (round, model), site
    bool is_paused_ = false;
    std::string final_state_;
    std::string error_;
    std::string told_error_;  // the last that a line has told
};

}  // namespace atl::cli
