#include "services/cli/commands/job_check.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "services/cli/commands/facility_check.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"

namespace atl::cli {
namespace {

using nlohmann::json;

std::string size_text(const json& check, const char* key) {
    return human_bytes(static_cast<std::uint64_t>(check.value(key, 0.0)));
}

// The findings about one participant or evaluation stand together.
void print_findings(const json& findings) {
    for (std::size_t begin = 0; begin < findings.size();) {
        const std::string path = text(findings[begin], "path"), facility = text(findings[begin], "facility");
        json rows = json::array();
        for (; begin < findings.size() && text(findings[begin], "path") == path; ++begin) {
            json row = findings[begin];
            if (const std::string field = text(row, "field"); !field.empty())
                row["seen"] = field + ": " + text(row, "seen");
            rows.push_back(std::move(row));
        }
        if (!facility.empty()) std::cout << "\n" << path << ": " << facility << "\n";
        std::cout << check_table(rows, terminal_width());
    }
}

}  // namespace

Status check_job(const Context& context, const json& spec) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json check, client.post_json("/v1/job-checks", spec));
    const json& findings = check.at("findings");
    if (context.json) {
        ATOLL_RETURN_IF_ERROR(print_json(check));
    } else {
        print_findings(findings);
        std::cout << "\nto the facilities: " << size_text(check, "to_facilities_bytes")
                  << " at most; back: " << size_text(check, "from_facilities_bytes") << "\n";
    }
    if (check.at("ok").get<bool>()) return {};
    const auto failed = std::count_if(findings.begin(), findings.end(),
                                      [](const json& finding) { return text(finding, "state") == "fail"; });
    return invalid_argument(
        "", "the job would be refused: " + std::to_string(failed) + (failed == 1 ? " check fails" : " checks fail"));
}

}  // namespace atl::cli
