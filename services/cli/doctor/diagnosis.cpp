#include "services/cli/doctor/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "shared/base/text.h"

namespace atl::cli {
namespace {

constexpr double kDay_s = 86400;
constexpr double kClockOffMax_s = 30;
constexpr double kSiteClockAheadMax_s = 60;

enum class Test { kBelow, kAbove, kEndsWithin };
enum class Unit { kNone, kSeconds, kBytes };

// As an alert rule, without the time for which it must hold: here somebody asks now. {service}, {label} and {value} are
// filled in.
struct Rule {
    const char* alert;
    Severity severity;
    const char* metric;
    Test test;
    double limit;
    const char* limit_metric;  // of which `limit` is so many times; empty: it is the limit
    const char* label;         // that says what the sample is about; empty: the service
    Unit unit;
    const char* what;
    const char* remedy;
};

constexpr Severity kCritical = Severity::kCritical;
constexpr Severity kWarning = Severity::kWarning;
constexpr const char* kLoginsSpent = "its logins by ssh are used up for now";

constexpr Rule kRules[] = {
    {"AtollDependencyAway", kCritical, "atoll_ready", Test::kBelow, 1, "", "dependency", Unit::kNone,
     "{service} cannot work with {label}",
     "`atoll status` says what runs; look at the log of {service} and of {label}"},
    {"AtollFacilityUnreachable", kWarning, "atoll_facility_silent_seconds", Test::kAbove, 0, "", "facility",
     Unit::kSeconds, "has given no answer for {value}", "`atoll facility check {label}` says what is in the way"},
    {"AtollBatchSystemAway", kWarning, "atoll_facility_batch_system_up", Test::kBelow, 1, "", "facility", Unit::kNone,
     "its batch system gives no answer", "ask the site; `atoll facility check {label}` tries it again"},
    {"AtollCredentialEnds", kWarning, "atoll_facility_credential_expiry_timestamp_seconds", Test::kEndsWithin,
     7 * kDay_s, "", "facility", Unit::kSeconds, "its ssh certificate ends in {value}",
     "renew it where dispatch runs; it is taken without a restart"},
    {"AtollTokenEnds", kWarning, "atoll_token_expiry_timestamp_seconds", Test::kEndsWithin, 7 * kDay_s, "", "token",
     Unit::kSeconds, "the token of {service} ends in {value}",
     "`atoll up` again, or `docker compose up`: both renew what ends within a week"},
    {"AtollCertificateEnds", kWarning, "atoll_certificate_expiry_timestamp_seconds", Test::kEndsWithin, 14 * kDay_s, "",
     "use", Unit::kSeconds, "the certificate ends in {value}",
     "renew it, and give it to whatever serves it (gateway: compose/tls.yaml, `atoll up --tls-certificate`)"},
    {"AtollRoundLate", kWarning, "atoll_round_age_ratio", Test::kAbove, 3, "", "", Unit::kNone,
     "a round takes {value} times as long as those before it", "`atoll job list` says what jobs wait for"},
    {"AtollTasksNotTakenUp", kCritical, "atoll_due_task_age_seconds", Test::kAbove, 300, "", "", Unit::kSeconds,
     "a task has been due for {value} and no worker has taken it up",
     "look at the log of {service}; raise `workers` in its settings if all are busy"},
    {"AtollDiskFull", kCritical, "atoll_store_disk_free_bytes", Test::kBelow, 2, "atoll_store_disk_reserve_bytes", "",
     Unit::kBytes, "its disk has {value} free; uploads are refused soon",
     "`atoll model prune`, `atoll job prune`, or a larger disk"},
    {"AtollOutboxStuck", kCritical, "atoll_outbox_lag_seconds", Test::kAbove, 120, "", "", Unit::kSeconds,
     "its events have waited for Kafka for {value}", "`atoll status`: is Kafka ready? Its log says why not"},
    {"AtollConsumerLags", kCritical, "atoll_inbox_lag_seconds", Test::kAbove, 120, "", "consumer", Unit::kSeconds,
     "events have waited for it for {value}", "look at the log of {service}; a restart loses nothing"},
    {"AtollDeadLetters", kWarning, "atoll_inbox_dead_letters", Test::kAbove, 0, "", "consumer", Unit::kNone,
     "has refused {value} events", "`atoll events list` says why; then `atoll events replay --all`"},
    {"AtollBlobsDamaged", kCritical, "atoll_store_blobs_damaged", Test::kAbove, 0, "", "", Unit::kNone,
     "{value} blobs have rotted", "`atoll model damaged` lists them: upload them again, and look at the disk"},
    {"", kWarning, "atoll_facility_login_budget_remaining", Test::kBelow, 1, "", "facility", Unit::kNone, kLoginsSpent,
     "wait; `ssh_logins_max` of dispatch says how many a site bears"},
};

std::string value_text(const Rule& rule, double value) {
    if (rule.unit == Unit::kSeconds) return human_seconds(std::max(value, 0.0));
    if (rule.unit == Unit::kBytes) return human_bytes(static_cast<std::uint64_t>(std::max(value, 0.0)));
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
        const bool is_end = rule.test == Test::kEndsWithin;
        const double value = is_end ? sample.value - static_cast<double>(now_unix_s) : sample.value;
        if (rule.test == Test::kAbove ? value <= limit : value >= limit) continue;
        const auto found = sample.labels.find(rule.label);
        const std::string label = found == sample.labels.end() ? service.name : found->second;
        const std::string shown = value_text(rule, value);
        problems.push_back({rule.severity, rule.alert, label, fill_in(rule.what, service.name, label, shown),
                            fill_in(rule.remedy, service.name, label, shown)});
    }
}

// Cleaning up behind jobs that ended: what is left at a site takes its disk.
void look_for_leftovers(const ServiceSeen& service, std::vector<Problem>& problems) {
    std::map<std::string, double> left;
    for (const Sample& sample : service.samples)
        if (sample.metric == "atoll_tasks" && sample.labels.contains("facility") && sample.labels.contains("kind") &&
            sample.labels.at("kind") == "clean")
            left[sample.labels.at("facility")] += sample.value;
    for (const auto& [facility, tasks] : left)
        if (tasks > 0)
            problems.push_back({kWarning, "", facility,
                                fmt::format("{} jobs that ended have left files there that are not removed yet", tasks),
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
                            "`atoll facility check " + name + "` looks at the site; what waits goes on by itself"});
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
    for (const Rule& rule : kRules)
        if (*rule.alert != '\0') alerts.emplace_back(rule.alert);
    return alerts;
}

std::vector<Problem> diagnose(const StackSeen& seen) {
    std::vector<Problem> problems;
    for (const ServiceSeen& service : seen.services) {
        if (!service.error.empty()) {
            problems.push_back({kCritical, "AtollServiceDown", service.name, "does not answer: " + service.error,
                                "`atoll status` says what runs, `atoll up` starts what does not"});
            continue;
        }
        for (const Rule& rule : kRules) apply(rule, service, seen.now_unix_s, problems);
        look_for_leftovers(service, problems);
        look_at_clocks(service, seen.now_unix_s, problems);
        look_at_version(service, seen.version, problems);
    }
    look_at_token(seen, problems);
    look_at_waits(seen, problems);
    prefer_reasons(seen, problems);
    join_rows(problems);
    std::ranges::stable_sort(problems, {}, &Problem::severity);
    return problems;
}

}  // namespace atl::cli
