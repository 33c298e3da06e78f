#include "services/cli/job_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/cli/rest.h"
#include "shared/base/spelling.h"

namespace atl::cli {

using nlohmann::json;

Result<std::string> find_job(const json& jobs, const std::string& given) {
    std::string newest;
    std::vector<std::string> names;
    std::vector<std::string> named;
    for (const json& job : jobs) {
        const std::string id = text(job, "id");
        if (id == given) return id;
        names.push_back(text(job, "name"));
        if (text(job, "name") == given) named.push_back(id + " (" + text(job, "state") + ")");
        if (text(job, "name") == given || given == "newest")
            newest = std::max(newest, id);  // ids sort by creation time
    }
    if (named.size() > 1) {
        std::string message = std::to_string(named.size()) + " jobs are called " + given + "; give an id:";
        for (const std::string& one : named) message += "\n  " + one;
        return invalid_argument("job", message);
    }
    if (!newest.empty()) return newest;
    if (given == "newest") return not_found("there is no job yet", "job");
    return not_found("there is no job " + given + did_you_mean(given, names), "job");
}

}  // namespace atl::cli
