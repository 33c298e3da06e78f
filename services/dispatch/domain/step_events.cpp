#include "services/dispatch/domain/step_events.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>

namespace atl::dispatch {
namespace {

using json::Json;

using Value = std::optional<double> StepLine::*;
constexpr std::pair<const char*, Value> kValues[] = {
    {"time_unix_s", &StepLine::time_unix_s},
    {"loss", &StepLine::loss},
    {"lr", &StepLine::lr},
    {"grad_norm", &StepLine::grad_norm},
    {"mfu", &StepLine::mfu},
    {"tokens_per_s", &StepLine::tokens_per_s},
    {"val_loss", &StepLine::val_loss},
    {"val_perplexity", &StepLine::val_perplexity},
};

// Of one step, or of a bucket of them.
struct Point {
    StepLine line;
    std::int64_t steps = 1;
    std::optional<double> loss_min;
    std::optional<double> loss_max;
};

// The mean of those that have the value. Each is divided before it is added, as a site may print the largest numbers.
std::optional<double> mean_of(std::span<const StepLine> lines, Value value) {
    const auto has_it = [&](const StepLine& line) { return (line.*value).has_value(); };
    const auto count = static_cast<double>(std::count_if(lines.begin(), lines.end(), has_it));
    if (count == 0) return std::nullopt;
    double mean = 0;
    for (const StepLine& line : lines) mean += (line.*value).value_or(0) / count;
    return mean;
}

Point to_point(std::span<const StepLine> lines) {
    Point point{lines.back(), static_cast<std::int64_t>(lines.size()), {}, {}};
    if (lines.size() == 1) return point;
    for (const auto& [name, value] : kValues) point.line.*value = mean_of(lines, value);
    point.line.time_unix_s = lines.back().time_unix_s;
    for (const StepLine& line : lines) {
        if (!line.loss) continue;
        point.loss_min = std::min(point.loss_min.value_or(*line.loss), *line.loss);
        point.loss_max = std::max(point.loss_max.value_or(*line.loss), *line.loss);
    }
    return point;
}

std::size_t bucket_size(std::int64_t points_told) {
    if (points_told < kPointsMax) return 1;
    return static_cast<std::size_t>(points_told < 2 * kPointsMax ? kBucketFactor : kBucketFactor * kBucketFactor);
}

template <class Get>
void add_column(Json& columns, const char* name, std::span<const Point> points, const Get& get) {
    Json column = Json::array();
    bool has_any = false;
    for (const Point& point : points) {
        const auto value = get(point);
        has_any = has_any || value.has_value();
        column.push_back(value ? Json(*value) : Json());
    }
    if (has_any) columns[name] = std::move(column);
}

Json to_columns(std::span<const Point> points) {
    Json columns = Json::object();
    add_column(columns, "step", points, [](const Point& point) { return std::optional(point.line.step); });
    for (const auto& [name, value] : kValues)
        add_column(columns, name, points, [value = value](const Point& point) { return point.line.*value; });
    const bool is_whole =
        std::all_of(points.begin(), points.end(), [](const Point& point) { return point.steps == 1; });
    if (is_whole) return columns;
    add_column(columns, "steps", points, [](const Point& point) { return std::optional(point.steps); });
    add_column(columns, "loss_min", points, [](const Point& point) { return point.loss_min; });
    add_column(columns, "loss_max", points, [](const Point& point) { return point.loss_max; });
    return columns;
}

Json to_event(std::span<const Point> points, const StepLine& newest) {
    Json data = {{"step", newest.step}};
    for (const auto& [name, value] : kValues)
        if (newest.*value) data[name] = *(newest.*value);
    if (points.size() > 1 || points.front().steps > 1) data["points"] = to_columns(points);
    return data;
}

// A validation has a line of its own, after its step's.
std::vector<StepLine> join_lines(const std::vector<StepLine>& lines) {
    std::vector<StepLine> steps;
    for (const StepLine& line : lines) {
        if (steps.empty() || steps.back().step != line.step) {
            steps.push_back(line);
            continue;
        }
        for (const auto& [name, value] : kValues)
            if (line.*value) steps.back().*value = line.*value;
    }
    return steps;
}

}  // namespace

std::vector<Json> progress_events(const std::vector<StepLine>& lines, std::int64_t& points_told) {
    std::vector<Json> events;
    const std::vector<StepLine> steps = join_lines(lines);
    std::span<const StepLine> left = steps;
    while (!left.empty()) {
        std::vector<Point> points;
        const StepLine* newest = nullptr;
        while (!left.empty() && points.size() < kPointsOfEventMax) {
            const std::size_t size = std::min(left.size(), bucket_size(points_told));
            points.push_back(to_point(left.first(size)));
            newest = &left[size - 1];
            left = left.subspan(size);
            ++points_told;
        }
        events.push_back(to_event(points, *newest));
    }
    return events;
}

StepLine newest_step(const std::optional<StepLine>& before, const std::vector<StepLine>& lines) {
    StepLine newest = before.value_or(lines.front());
    for (const StepLine& line : lines) {
        Json known = to_json(newest);
        if (line.step != newest.step)
            // A step of few tokens tells its loss with later ones.
            known = {{"loss", newest.loss ? Json(*newest.loss) : Json()},
                     {"loss_tokens", newest.loss_tokens ? Json(*newest.loss_tokens) : Json()},
                     {"val_loss", newest.val_loss ? Json(*newest.val_loss) : Json()},
                     {"val_perplexity", newest.val_perplexity ? Json(*newest.val_perplexity) : Json()},
                     {"val_tokens", newest.val_tokens ? Json(*newest.val_tokens) : Json()}};
        if (line.val_loss)
            for (const char* of_the_last : {"val_loss", "val_perplexity", "val_tokens"}) known.erase(of_the_last);
        known.update(to_json(line));
        newest = parse_step_line(known).value_or(line);
    }
    return newest;
}

}  // namespace atl::dispatch
