#include "services/cli/doctor/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "services/cli/doctor/rules.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

constexpr double kClockOffMax_s = 30;
constexpr double kSiteClockAheadMax_s = 60;

std::string value_text(const Rule& rule, double value) {
    if (rule.unit == Rule::Unit::kSeconds) return human_seconds(std::max(value, 0.0));
    if (rule.unit == Rule::Unit::kBytes) return human_bytes(static_cast<std::uint64_t>(std::max(value, 0.0)));
    return fmt::format("{:.4g}", value);
}

std::string fill_in(std::string text, const std::string& service, const std::string& label, const std::string& value) {
    for (const auto& [name, word] : {std::pair{"{service}", &service}, {"{label}", &label}, {"{value}", &value}})
        for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + word->size()))
            text.replace(at, std::string_view(name).size(), *word);
    return text;
}

double limit_of(const Rule& rule, const ServiceSeen& service) {
    if (*rule.limit_metric == '\0') return rule.limit;
    for (const Sample& sample : service.samples)
        if (sample.metric == rule.limit_metric) return rule.limit * sample.value;
    return -HUGE_VAL;
}

void apply(const Rule& rule, const ServiceSeen& service, std::int64_t now_unix_s, std::vector<Problem>& problems) {
    const double limit = limit_of(rule, service);
    for (const Sample& sample : service.samples) {
        if (sample.metric != rule.metric) continue;
        const bool is_end = rule.test == Rule::Test::kEndsWithin;
        const double value = is_end ? sample.value - static_cast<double>(now_unix_s) : sample.value;
        if (rule.test == Rule::Test::kAbove ? value <= limit : value >= limit) continue;
        const auto found = sample.labels.find(rule.label);
        const std::string label = found == sample.labels.end() ? service.name : found->second;
        const std::string shown = value_text(rule, value);
        problems.push_back({rule.severity, rule.alert, label, fill_in(rule.what, service.name, label, shown),
                            fill_in(rule.remedy, service.name, label, shown)});
    }
}

// Cleaning up behind jobs that ended: what is left at a site takes its disk. Only where something stands in the way
// there: at a site that answers it is a matter of seconds.
void look_for_leftovers(const ServiceSeen& service, std::vector<Problem>& problems) {
    std::map<std::string, double> left;
    std::set<std::string> held_up;
    for (const Sample& sample : service.samples) {
        const auto reason = sample.labels.find("reason");
        const auto facility = sample.labels.find("facility");
        if (sample.metric != "atoll_tasks_waiting" || sample.value <= 0 || facility == sample.labels.end()) continue;
        if (reason != sample.labels.end() && reason->second != "queue" && reason->second != "paused")
            held_up.insert(facility->second);
    }
    for (const Sample& sample : service.samples)
        if (sample.metric == "atoll_tasks" && sample.labels.contains("facility") && sample.labels.contains("kind") &&
            sample.labels.at("kind") == "clean")
            left[sample.labels.at("facility")] += sample.value;
    for (const auto& [facility, tasks] : left)
        if (tasks > 0 && held_up.contains(facility))
            problems.push_back(
                {kWarning, "", facility,
                 fmt::format("{} that ended {} left files there that are not removed yet",
                             tasks == 1 ? "a job" : fmt::format("{} jobs", tasks), tasks == 1 ? "has" : "have"),
                 "they go when the site answers: `atoll facility check " + facility + "`"});
}

void look_at_clocks(const ServiceSeen& service, std::int64_t now_unix_s, std::vector<Problem>& problems) {
    if (service.clock_off_s && std::abs(*service.clock_off_s) > kClockOffMax_s)
        problems.push_back({kWarning, "", service.name,
                            fmt::format("its clock is {} {} ours", human_seconds(std::abs(*service.clock_off_s)),
                                        *service.clock_off_s > 0 ? "ahead of" : "behind"),
                            "set both by NTP: tokens hold by the clock"});
    std::set<std::string> told;
    for (const Sample& sample : service.samples) {
        if (sample.metric != "atoll_training_sample_timestamp_seconds") continue;
        const double ahead_s = sample.value - static_cast<double>(now_unix_s);
        const auto facility = sample.labels.find("facility");
        if (ahead_s <= kSiteClockAheadMax_s || facility == sample.labels.end() || !told.insert(facility->second).second)
            continue;
        problems.push_back({kWarning, "", facility->second,
                            "its nodes' clock is " + human_seconds(ahead_s) + " ahead of ours",
                            "ask the site to set its clock: its training curves are drawn in the future"});
    }
}

void look_at_version(const ServiceSeen& service, const std::string& ours, std::vector<Problem>& problems) {
    for (const Sample& sample : service.samples) {
        const auto version = sample.labels.find("version");
        if (sample.metric != "atoll_build_info" || version == sample.labels.end() || version->second == ours) continue;
        problems.push_back({kWarning, "", service.name, "runs version " + version->second + "; this program is " + ours,
                            "use the programs of one release"});
    }
}

void look_at_token(const StackSeen& seen, std::vector<Problem>& problems) {
    const auto left_s = static_cast<double>(seen.token_end_unix_s - seen.now_unix_s);
    if (seen.token_end_unix_s == 0 || left_s >= 7 * kDay_s) return;
    problems.push_back({kWarning, "", "your token", "ends in " + human_seconds(std::max(left_s, 0.0)),
                        "`atoll up` renews those of its stack; an admin issues others: `atoll token issue`"});
}

// A facility that cannot be reached is one problem: that its logins are used up comes of it.
void join_rows(std::vector<Problem>& problems) {
    std::set<std::string> unreachable;
    for (const Problem& one : problems)
        if (one.alert == "AtollFacilityUnreachable") unreachable.insert(one.about);
    std::erase_if(problems,
                  [&](const Problem& one) { return one.what == kLoginsSpent && unreachable.contains(one.about); });
}

// What tasks wait for at a site that answers.
void look_at_waits(const StackSeen& seen, std::vector<Problem>& problems) {
    for (const auto& [name, reason] : seen.task_waits)
        problems.push_back({kWarning, "", name, "a task there waits: " + reason,
                            "`atoll facility check " + name +
                                "` looks at the site; `atoll job list` names all jobs that wait; they go on once what "
                                "is in their way has passed or is mended"});
}

// Of the stack on this machine, also what answers no request. That a service is away is told above.
void look_at_components(const StackSeen& seen, std::vector<Problem>& problems) {
    for (const auto& [name, state] : seen.components) {
        const bool is_told = std::any_of(problems.begin(), problems.end(), [&](const Problem& one) {
            return one.about == name && one.alert == "AtollServiceDown";
        });
        if (state == "ready" || is_told) continue;
        problems.push_back({kCritical, "", name, "is " + state,
                            "`atoll up` starts what does not run; `atoll status` says where the logs are"});
    }
}

// What the facility's own record says is better than for how long it has been so.
void prefer_reasons(const StackSeen& seen, std::vector<Problem>& problems) {
    for (const auto& [name, reason] : seen.facilities)
        for (Problem& problem : problems)
            if (problem.about == name &&
                (problem.alert == "AtollFacilityUnreachable" || problem.alert == "AtollBatchSystemAway"))
                problem.what += ": " + reason;
}

}  // namespace

const char* to_string(Severity severity) {
    return severity == kCritical ? "critical" : "warning";
}

std::vector<std::string> diagnosed_alerts() {
    std::vector<std::string> alerts = {"AtollServiceDown"};
    for (const Rule& rule : rules())
        if (*rule.alert != '\0') alerts.emplace_back(rule.alert);
    return alerts;
}

std::vector<Problem> diagnose(const StackSeen& seen) {
    std::vector<Problem> problems;
    for (const ServiceSeen& service : seen.services) {
        if (!service.error.empty()) {
            problems.push_back({kCritical, "AtollServiceDown", service.name, "does not answer: " + service.error,
                                "start it again with what runs it: `atoll up`, `docker compose up --wait`, `kubectl "
                                "rollout restart`"});
            continue;
        }
        for (const Rule& rule : rules()) apply(rule, service, seen.now_unix_s, problems);
        look_for_leftovers(service, problems);
        look_at_clocks(service, seen.now_unix_s, problems);
        look_at_version(service, seen.version, problems);
    }
    look_at_components(seen, problems);
    look_at_token(seen, problems);
    look_at_waits(seen, problems);
    prefer_reasons(seen, problems);
    join_rows(problems);
    std::ranges::stable_sort(problems, {}, &Problem::severity);
    return problems;
}

}  // namespace atl::cli
