#pragma once

#include <span>

#include "services/cli/doctor/diagnosis.h"

// What the services' metrics say is wrong: the one table of `atoll doctor` and of the console, whose
// page/problem_rules.js is made from it (rules_test.cpp).
namespace atl::cli {

// As an alert rule of compose/observe/alerts.yaml, without the time for which it must hold: here somebody asks now.
// {service}, {label} and {value} are filled in.
struct Rule {
    enum class Test { kBelow, kAbove, kEndsWithin };
    enum class Unit { kNone, kSeconds, kBytes };

    const char* alert;  // its name there; empty: there is none
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

inline constexpr double kDay_s = 86400;
inline constexpr Severity kCritical = Severity::kCritical;
inline constexpr Severity kWarning = Severity::kWarning;
inline constexpr const char* kLoginsSpent = "its logins by ssh are used up for now";

std::span<const Rule> rules();

}  // namespace atl::cli
