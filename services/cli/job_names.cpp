#include "services/cli/job_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/cli/rest.h"
#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::cli {

using nlohmann::json;

namespace {
constexpr std::size_t kBeginMin = 8;  // of an id, as a narrow table shows it
}  // namespace

Result<std::string> find_job(const json& jobs, const std::string& given, const std::string& subject) {
    const auto is_own = [&](const json& job) {
        return text(job, "name") == given && text(job, "created_by") == subject;
    };
    const auto is_mine = [&](const json& job) { return text(job, "created_by") == subject; };
    const bool has_own = std::any_of(jobs.begin(), jobs.end(), is_own);
    const bool has_mine = std::any_of(jobs.begin(), jobs.end(), is_mine);
    std::string newest;
    std::vector<std::string> names;
    std::vector<std::string> named;
    std::vector<std::string> begun;  // ids that begin so
    for (const json& job : jobs) {
        const std::string id = text(job, "id");
        if (id == given) return id;
        names.push_back(text(job, "name"));
        if (given.size() >= kBeginMin && id.starts_with(given)) begun.push_back(id);
        const bool is_named = has_own ? is_own(job) : text(job, "name") == given;
        if (is_named) named.push_back(id + " (" + text(job, "state") + ")");
        const bool may_be_newest = given == "newest" && (is_mine(job) || !has_mine);
        if (is_named || may_be_newest) newest = std::max(newest, id);  // ids sort by creation time
    }
    if (named.size() > 1) {
        std::string message = std::to_string(named.size()) + " jobs are called " + given + "; give an id:";
        for (const std::string& one : named) message += "\n  " + one;
        return invalid_argument("job", message);
    }
    std::erase(begun, newest);  // a job that is called as its own id begins
    if (!newest.empty() && !begun.empty())
        return invalid_argument(
            "job", given + " is the name of a job and the beginning of another's id; give a whole id:\n  " + newest +
                       "\n  " + join(begun, "\n  "));
    if (!newest.empty()) return newest;
    if (begun.size() == 1) return begun.front();
    if (begun.size() > 1)
        return invalid_argument("job", std::to_string(begun.size()) + " jobs have an id that begins with " + given +
                                           ":\n  " + join(begun, "\n  "));
    if (given == "newest") return not_found("there is no job yet", "job");
    const auto is_begun = [&](const json& job) { return text(job, "id").starts_with(given); };
    if (!given.empty() && std::any_of(jobs.begin(), jobs.end(), is_begun))
        return not_found("there is no job " + given + ": to name a job by its id give 8 or more of its characters",
                         "job");
    return not_found("there is no job " + given + did_you_mean(given, names), "job");
}

}  // namespace atl::cli
