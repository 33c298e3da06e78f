#include "shared/metrics/reference.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace atl::metrics {
namespace {

// Labels whose values come from a small set. `atoll_job` is the name of a job that runs now (Prometheus keeps `job` for
// itself), `facility` of a facility; `dataset` is one that such a job evaluates at a facility.
constexpr std::string_view kBoundedLabels[] = {
    "atoll_job", "consumer", "dataset", "dependency", "direction", "facility", "kind",
    "method",    "outcome",  "phase",   "reason",     "result",    "revision", "route",
    "state",     "status",   "step",    "table",      "token",     "use",      "version"};

const char* to_word(Type type) {
    return type == Type::kCounter ? "counter" : type == Type::kGauge ? "gauge" : "histogram";
}

bool is_name(std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
        return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
    });
}

void check_name(const Metric& row, std::vector<std::string>& faults) {
    const std::string name(row.name);
    if (!is_name(name) || !(name.starts_with("atoll_") || name.starts_with("process_")))
        faults.push_back(name + " is not named atoll_… in lower-case letters, digits and '_'");
    std::string_view base = row.name;
    const bool is_total = base.ends_with("_total");
    if (is_total != (row.type == Type::kCounter)) faults.push_back(name + ": counters, and they alone, end in _total");
    if (is_total) base.remove_suffix(6);
    if (!row.unit.empty() && !base.ends_with("_" + std::string(row.unit)))
        faults.push_back(name + " does not end in its unit, " + std::string(row.unit));
    if (row.type == Type::kHistogram && row.unit != "seconds") faults.push_back(name + " has buckets of seconds");
}

}  // namespace

std::string describe_table(const std::string& heading, std::span<const Metric> rows) {
    std::string text = "## " + heading + "\n\n| name | type | labels | what it says |\n|---|---|---|---|\n";
    for (const Metric& row : rows) {
        std::string labels;
        for (const std::string_view label : row.labels)
            if (!label.empty()) labels += (labels.empty() ? "`" : ", `") + std::string(label) + "`";
        text += "| `" + std::string(row.name) + "` | " + to_word(row.type) + " | " + labels + " | " +
                std::string(row.help) + ". |\n";
    }
    return text + "\n";
}

std::vector<std::string> table_faults(std::span<const Metric> rows) {
    std::vector<std::string> faults;
    std::set<std::string_view> names;
    for (const Metric& row : rows) {
        const std::string name(row.name);
        check_name(row, faults);
        if (!names.insert(row.name).second) faults.push_back(name + " is there twice");
        if (row.help.empty() || row.help.ends_with('.') || row.help.find_first_of("\n\\|") != std::string_view::npos)
            faults.push_back(name + ": its help is not one sentence without a full stop, line break, '\\' or '|'");
        for (const std::string_view label : row.labels)
            if (!label.empty() && std::ranges::count(kBoundedLabels, label) == 0)
                faults.push_back(name + ": '" + std::string(label) + "' is not a label of few values");
    }
    return faults;
}

}  // namespace atl::metrics
