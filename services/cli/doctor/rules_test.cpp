#include "services/cli/doctor/rules.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"

// services/console/page/problem_rules.js is made from the table of `atoll doctor`. With ATOLL_WRITE_DOCS=1 the test
// writes it.
namespace atl::cli {
namespace {

const char* name_of(Rule::Test test) {
    if (test == Rule::Test::kEndsWithin) return "ends within";
    return test == Rule::Test::kBelow ? "below" : "above";
}

const char* name_of(Rule::Unit unit) {
    if (unit == Rule::Unit::kNone) return "none";
    return unit == Rule::Unit::kSeconds ? "seconds" : "bytes";
}

// As the page shows it, where commands stand without backticks.
std::string quoted(std::string text) {
    std::erase(text, '`');
    EXPECT_EQ(text.find('\''), std::string::npos) << "it ends the text of the page: " << text;
    return "'" + text + "'";
}

std::string make_script() {
    std::string script =
        "// Made from services/cli/doctor/rules.cpp by its test, with ATOLL_WRITE_DOCS=1: the alert rules of `atoll "
        "doctor`.\n"
        "// {alert, severity, metric, test, limit, limitMetric: of which `limit` is so many times, label: what a "
        "sample is "
        "about (else\n"
        "// its service), unit, what, remedy}; {service}, {label} and {value} are filled in.\n"
        "export const rules = [\n";
    for (const Rule& rule : rules()) {
        if (*rule.alert == '\0') continue;
        script += "    {\n";
        for (const auto& [key, value] : {std::pair<const char*, std::string>{"alert", quoted(rule.alert)},
                                         {"severity", quoted(to_string(rule.severity))},
                                         {"metric", quoted(rule.metric)},
                                         {"test", quoted(name_of(rule.test))},
                                         {"limit", nlohmann::json(static_cast<std::int64_t>(rule.limit)).dump()},
                                         {"limitMetric", quoted(rule.limit_metric)},
                                         {"label", quoted(rule.label)},
                                         {"unit", quoted(name_of(rule.unit))},
                                         {"what", quoted(rule.what)},
                                         {"remedy", quoted(rule.remedy)}})
            script += std::string("        ") + key + ": " + value + ",\n";
        script += "    },\n";
    }
    return script + "];\n";
}

TEST(ProblemRulesTest, TheConsolesAreThoseOfTheDoctor) {
    const std::filesystem::path file = ATOLL_SOURCE "/services/console/page/problem_rules.js";
    if (std::getenv("ATOLL_WRITE_DOCS") != nullptr) {
        ASSERT_TRUE(write_file_atomic(file, make_script()).ok());
    }
    const auto script = read_file(file);
    ASSERT_TRUE(script.ok()) << script.error().message;
    EXPECT_TRUE(*script == make_script()) << file << " is not as the table; ATOLL_WRITE_DOCS=1 writes it";
}

// The end of the alert's expression.
std::string condition_of(const Rule& rule) {
    const std::string limit = nlohmann::json(static_cast<std::int64_t>(rule.limit)).dump();
    if (*rule.limit_metric != '\0') return " < " + limit + " * " + rule.limit_metric;
    if (rule.test == Rule::Test::kEndsWithin)
        return " - time() < " + std::to_string(static_cast<int>(rule.limit / kDay_s)) + " * 86400";
    return rule.test == Rule::Test::kBelow ? " == 0" : " > " + limit;
}

TEST(ProblemRulesTest, TheLimitsAreThoseOfTheAlerts) {
    const std::string alerts = read_file(ATOLL_SOURCE "/compose/observe/alerts.yaml").value();
    for (const Rule& rule : rules()) {
        if (*rule.alert == '\0') continue;
        const auto alert = alerts.find("- alert: " + std::string(rule.alert) + "\n");
        ASSERT_NE(alert, std::string::npos) << rule.alert;
        const auto begin = alerts.find(" expr: ", alert);
        const std::string expression = alerts.substr(begin, alerts.find('\n', begin) - begin);
        // Of a facility that gives no answer now a person is told at once, an operator after a quarter of an hour.
        const bool waits = std::string(rule.alert) == "AtollFacilityUnreachable";
        EXPECT_TRUE(expression.ends_with(waits ? " > 900" : condition_of(rule))) << rule.alert << expression;
    }
}

}  // namespace
}  // namespace atl::cli
