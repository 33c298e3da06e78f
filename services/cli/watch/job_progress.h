#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "services/cli/watch/evaluation_progress.h"

namespace atl::cli {

// What a job's events tell, gathered for `job watch`. Events may come twice and may be of a kind we do not know.
class JobProgress {
  public:
    // `job`: the resource as GET /v1/jobs/{id} gives it.
    explicit JobProgress(const nlohmann::json& job);

    // Applies one event; returns a line for people, empty if it is not worth one.
    std::string apply(const nlohmann::json& event);

    // What GET /v1/jobs/{id} says of the job's state at the moment ("running", "paused"); returns a line for people,
    // empty if it is no news.
    std::string apply_state(const std::string& state);

    // What GET /v1/jobs/{id} says stands in the way at facilities ("waiting"); returns a line for each that is news.
    std::string apply_waiting(const nlohmann::json& waiting);

    // What GET /v1/jobs/{id} says of an ended job's batch jobs that are still being cancelled ("waits"); returns a line
    // for each.
    std::string apply_left(const nlohmann::json& waits);

    // What the aggregation service says of the current round (GET /v1/aggregations/{job}/{round}).
    void apply_aggregation(const nlohmann::json& aggregation);
    // True while the current round's updates are made into the next model.
    bool aggregates() const { return phase_ == Phase::kAggregating && !ended(); }
    std::int64_t round() const { return round_.at("round").get<std::int64_t>(); }

    bool ended() const { return !final_state_.empty(); }
    const std::string& final_state() const { return final_state_; }  // "completed", "failed", "cancelled"
    const std::string& error() const { return error_; }
    // True if a line that apply() returned has told the reason already.
    bool has_told_error() const { return error_ == told_error_; }

    // The whole picture, lines of text: what goes on at the moment `now`, the current round by facility, what is
    // evaluated where, and perplexities of the base, of the last rounds' global models and of the newest updates. For a
    // terminal of `width` columns; 0: of any.
    std::string picture(std::size_t width = 0,
                        std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;

  private:
    enum class Phase { kNone, kTraining, kAggregating, kEvaluating };  // kEvaluating: after the last round
    struct Work {
        std::string state = "waiting";  // then "running", "done", …
        std::int64_t attempt = 0;
        std::int64_t reached = 0;  // the furthest step of the attempts before it
        nlohmann::json progress;   // the newest step
        nlohmann::json metrics;    // of the update, when it is done
        bool has_made_a_step() const { return reached > 0 || !progress.is_null(); }
    };
    void enter(Phase phase, const nlohmann::json& event);
    std::string apply_readmission(const nlohmann::json& data);
    std::string apply_left_out(const nlohmann::json& data);
    std::string apply_quarantine(const nlohmann::json& data);
    std::string apply_round(const std::string& what, const nlohmann::json& data);
    std::string phase_text(std::chrono::system_clock::time_point now) const;
    std::string apply_task(const std::string& what, const nlohmann::json& data);
    void apply_training(const std::string& what, const nlohmann::json& data);
    std::string apply_end(const std::string& state);
    void end_trainings();
    void apply_results(const nlohmann::json& data);
    std::string apply_evaluated(std::int64_t round);
    std::string training_table(std::size_t width) const;
    std::string perplexity_table(std::size_t width) const;

    std::string name_;
    std::vector<std::string> participants_;  // facilities
    EvaluationProgress evaluations_;
    Phase phase_ = Phase::kNone;
    std::string phase_since_;  // RFC 3339; empty: not known
    std::size_t updates_ = 0;  // of the round that is aggregated
    std::string parts_;        // how far that is, for people
    std::int64_t steps_ = 0;   // of a task, 0 if not known
    nlohmann::json round_;     // the current one: "round", "index" and "rounds", as round_text() takes them
    std::map<std::string, Work> training_;  // facility -> this round's task
    // Of rounds whose evaluations are not all there: round -> (facility, dataset) -> (model, perplexity)
    using Results = std::vector<std::pair<std::string, double>>;
    std::map<std::int64_t, std::map<std::pair<std::string, std::string>, Results>> results_;
    std::vector<std::string> columns_;  // columns: "dataset at facility"
    std::map<std::pair<std::int64_t, std::string>, std::map<std::string, double>>
        perplexity_;                                 // (round, model), column
    std::map<std::string, nlohmann::json> waiting_;  // by facility: {reason, since, next_try}
    std::map<std::string, std::string> left_;        // by facility: what may still run there after the job's end
    bool is_paused_ = false;
    std::string pause_reason_;  // why it paused by itself, and how it goes on; empty: somebody paused it
    std::string final_state_;
    std::string error_;
    std::string told_error_;  // the last that a line has told
};

}  // namespace atl::cli
