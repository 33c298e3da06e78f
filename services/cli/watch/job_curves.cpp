#include "services/cli/watch/job_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <tuple>

#include "services/cli/rest.h"

namespace atl::cli {
namespace {

using nlohmann::json;

struct Value {
    const char* name;  // in an event and in the table
    const char* metric;
    const char* help;
};
constexpr std::size_t kLoss = 0;
constexpr Value kTable[JobCurves::kValues] = {
    {"loss", "atoll_training_loss", "Loss of a step"},
    {"val_loss", "atoll_training_validation_loss", "Loss on the validation rows after a step"},
    {"val_perplexity", "atoll_training_validation_perplexity", "Perplexity of the validation rows after a step"},
    {"lr", "atoll_training_learning_rate", "Learning rate of a step"},
    {"grad_norm", "atoll_training_gradient_norm", "Norm of a step's gradient"},
    {"tokens_per_s", "atoll_training_tokens_per_second", "Tokens a second of a step"},
    {"mfu", "atoll_training_mfu_ratio", "Model FLOPs utilization of a step"}};
constexpr const char* kStepMetric = "atoll_training_step";
constexpr const char* kPerplexityMetric = "atoll_model_perplexity";

// "2026-03-01T12:00:00.25Z"; 0: it is not a time.
double unix_time(const std::string& rfc3339) {
    std::tm parts{};
    const char* const rest = ::strptime(rfc3339.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
    if (rest == nullptr) return 0;
    const double fraction = *rest == '.' ? std::strtod(rest, nullptr) : 0;
    return static_cast<double>(::timegm(&parts)) + fraction;
}

std::optional<double> number_of(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
}

// The columns of an event's points; without any the event itself is the one point.
std::vector<JobCurves::Point> points_of(const json& data, double told_unix_s) {
    const json columns = data.value("points", json::object());
    const bool has_columns = columns.is_object() && columns.contains("step");
    const json steps = has_columns ? columns.at("step") : json::array({data.value("step", 0)});
    const auto at = [&](const char* key, std::size_t i) -> std::optional<double> {
        if (!has_columns) return number_of(data, key);
        const auto column = columns.find(key);
        if (column == columns.end() || i >= column->size() || !column->at(i).is_number()) return std::nullopt;
        return column->at(i).get<double>();
    };
    std::vector<JobCurves::Point> points;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        JobCurves::Point& point = points.emplace_back();
        point.step = steps.at(i).get<std::int64_t>();
        point.time_unix_s = at("time_unix_s", i).value_or(told_unix_s);
        for (std::size_t value = 0; value < JobCurves::kValues; ++value)
            point.values[value] = at(kTable[value].name, i);
    }
    return points;
}

std::string escaped(const std::string& value) {
    std::string text;
    for (const char c : value) {
        if (c == '\\' || c == '"') text += '\\';
        text += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return text;
}

std::string labels_text(const std::vector<std::pair<const char*, std::string>>& labels) {
    std::string text;
    for (const auto& [name, value] : labels)
        text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value));
    return "{" + text + "}";
}

std::string family(const char* metric, const char* help) {
    return fmt::format("# TYPE {0} gauge\n# HELP {0} {1}\n", metric, help);
}

// One sample a line; Prometheus takes one a series and millisecond.
class Series {
  public:
    Series(const char* metric, std::string labels) : head_(metric + std::move(labels)) {}
    void add(std::string& text, double value, double time_unix_s) {
        time_ms_ = std::max(time_ms_ + 1, static_cast<std::int64_t>(std::llround(time_unix_s * 1000)));
        text += fmt::format("{} {} {}.{:03}\n", head_, value, time_ms_ / 1000, time_ms_ % 1000);
    }

  private:
    std::string head_;
    std::int64_t time_ms_ = 0;
};

std::string cell(const std::optional<double>& value) {
    return value ? fmt::format("{}", *value) : "";
}

}  // namespace

JobCurves::JobCurves(const nlohmann::json& rounds) {
    for (const auto& round : rounds)
        for (const auto& task : round.value("tasks", nlohmann::json::array()))
            datasets_[text(task, "id")] = text(task, "dataset");
}

void JobCurves::apply(const nlohmann::json& event) {
    const std::string type = text(event, "type");
    const nlohmann::json data = event.value("data", nlohmann::json::object());
    const double told_unix_s = unix_time(text(event, "time"));
    if (type == "atoll.task.progress.v1") return apply_progress(data, told_unix_s);
    if (type != "atoll.task.done.v1" || text(data, "kind") != "evaluate") return;
    const nlohmann::json result = data.value("result", nlohmann::json::object());
    for (const auto& one : result.value("evaluations", nlohmann::json::array()))
        if (const auto perplexity = number_of(one, "perplexity"))
            evaluations_.push_back({data.value("round", std::int64_t{0}), text(data, "facility"), text(data, "dataset"),
                                    text(one, "which"), *perplexity, told_unix_s});
}

void JobCurves::apply_progress(const nlohmann::json& data, double told_unix_s) {
    const std::string task = text(data, "task");
    Training& training = trainings_[task];
    training.round = data.value("round", std::int64_t{0});
    training.facility = text(data, "facility");
    training.dataset = datasets_[task];
    const std::int64_t attempt = data.value("attempt", std::int64_t{1});
    if (attempt < training.attempt) return;
    std::vector<Point> points = points_of(data, told_unix_s);
    std::vector<Point>& known = training.points;
    // Another attempt goes on from a state that was saved: what came after that is trained again.
    if (attempt > training.attempt && !points.empty())
        std::erase_if(known, [&](const Point& point) { return point.step >= points.front().step; });
    training.attempt = attempt;
    for (Point& point : points) {
        if (known.empty() || point.step > known.back().step) {
            known.push_back(std::move(point));
        } else if (point.step == known.back().step) {  // what comes after its step, as a validation
            for (std::size_t value = 0; value < kValues; ++value)
                if (point.values[value]) known.back().values[value] = point.values[value];
        }
    }
}

bool JobCurves::empty() const {
    return trainings().empty() && evaluations_.empty();
}

std::optional<double> JobCurves::Training::first_loss() const {
    const auto found = std::ranges::find_if(points, [](const Point& point) { return point.values[kLoss].has_value(); });
    return found == points.end() ? std::nullopt : found->values[kLoss];
}

std::optional<double> JobCurves::Training::last_loss() const {
    const auto found = std::find_if(points.rbegin(), points.rend(),
                                    [](const Point& point) { return point.values[kLoss].has_value(); });
    return found == points.rend() ? std::nullopt : found->values[kLoss];
}

std::vector<JobCurves::Training> JobCurves::trainings() const {
    std::vector<Training> all;
    for (const auto& [task, training] : trainings_)
        if (!training.points.empty()) all.push_back(training);
    std::ranges::sort(all, {}, [](const Training& one) { return std::tie(one.round, one.facility, one.dataset); });
    return all;
}

std::string JobCurves::openmetrics(const std::string& job) const {
    const std::vector<Training> all = trainings();
    const auto labels_of = [&](const auto& one) {
        return std::vector<std::pair<const char*, std::string>>{{"atoll_job", job},
                                                                {"facility", one.facility},
                                                                {"dataset", one.dataset},
                                                                {"round", std::to_string(one.round)}};
    };
    std::string result = family(kStepMetric, "Number of a step");
    for (const Training& one : all) {
        Series series(kStepMetric, labels_text(labels_of(one)));
        for (const Point& point : one.points) series.add(result, static_cast<double>(point.step), point.time_unix_s);
    }
    for (std::size_t value = 0; value < kValues; ++value) {
        std::string samples;
        for (const Training& one : all) {
            Series series(kTable[value].metric, labels_text(labels_of(one)));
            for (const Point& point : one.points)
                if (point.values[value]) series.add(samples, *point.values[value], point.time_unix_s);
        }
        if (!samples.empty()) result += family(kTable[value].metric, kTable[value].help) + samples;
    }
    if (!evaluations_.empty()) result += family(kPerplexityMetric, "Perplexity of a model of a round");
    for (const Evaluation& one : evaluations_) {
        auto labels = labels_of(one);
        labels.emplace_back("model", one.model);
        Series(kPerplexityMetric, labels_text(labels)).add(result, one.perplexity, one.time_unix_s);
    }
    return result + "# EOF\n";
}

std::string JobCurves::csv() const {
    std::string lines = "round,facility,dataset,step,time_unix_s";
    for (const Value& value : kTable) lines += std::string(",") + value.name;
    lines += "\n";
    for (const Training& one : trainings())
        for (const Point& point : one.points) {
            lines +=
                fmt::format("{},{},{},{},{:.3f}", one.round, one.facility, one.dataset, point.step, point.time_unix_s);
            for (const auto& value : point.values) lines += "," + cell(value);
            lines += "\n";
        }
    return lines;
}

nlohmann::json JobCurves::json() const {
    nlohmann::json all = {{"trainings", nlohmann::json::array()}, {"evaluations", nlohmann::json::array()}};
    for (const Training& one : trainings()) {
        nlohmann::json training = {{"round", one.round}, {"facility", one.facility}, {"dataset", one.dataset}};
        for (const Point& point : one.points) {
            training["step"].push_back(point.step);
            training["time_unix_s"].push_back(point.time_unix_s);
            for (std::size_t value = 0; value < kValues; ++value)
                training[kTable[value].name].push_back(point.values[value] ? nlohmann::json(*point.values[value])
                                                                           : nlohmann::json());
        }
        all["trainings"].push_back(std::move(training));
    }
    for (const Evaluation& one : evaluations_)
        all["evaluations"].push_back({{"round", one.round},
                                      {"facility", one.facility},
                                      {"dataset", one.dataset},
                                      {"model", one.model},
                                      {"perplexity", one.perplexity},
                                      {"time_unix_s", one.time_unix_s}});
    return all;
}

}  // namespace atl::cli
