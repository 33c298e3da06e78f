#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace atl::cli {

// What a job's trainings said at each step, and what its models were found to be worth, gathered from its events: for
// Prometheus, a table of numbers or a program. What an attempt trained anew takes the place of what it was before.
class JobCurves {
  public:
    // `rounds`: the items of GET /v1/jobs/{id}/rounds, which tell what trains on what.
    explicit JobCurves(const nlohmann::json& rounds);

    void apply(const nlohmann::json& event);
    bool empty() const;

    // OpenMetrics text with a time for each sample, as `promtool tsdb create-blocks-from openmetrics` takes it. The
    // times of a series rise by a millisecond at least.
    std::string openmetrics(const std::string& job) const;
    // A line a step, with a header.
    std::string csv() const;
    // {"trainings": [{round, facility, dataset, step: […], time_unix_s: […], loss: […], …}], "evaluations": […]}
    nlohmann::json json() const;

    static constexpr std::size_t kValues = 7;
    struct Point {
        std::int64_t step = 0;
        double time_unix_s = 0;
        std::array<std::optional<double>, kValues> values;
    };
    struct Training {
        std::int64_t round = 0;
        std::string facility;
        std::string dataset;
        std::int64_t attempt = 0;
        std::vector<Point> points;  // steps ascend

        // Of the loss, where it is known.
        std::optional<double> first_loss() const;
        std::optional<double> last_loss() const;
    };
    // By round, facility and dataset; those without a step are left out.
    std::vector<Training> trainings() const;

  private:
    struct Evaluation {
        std::int64_t round = 0;
        std::string facility;
        std::string dataset;
        std::string model;  // "base", "global", or whose update it is
        double perplexity = 0;
        double time_unix_s = 0;
    };
    void apply_progress(const nlohmann::json& data, double told_unix_s);

    std::map<std::string, std::string> datasets_;  // by task
    std::map<std::string, Training> trainings_;    // by task
    std::vector<Evaluation> evaluations_;
};

}  // namespace atl::cli
