#include "services/cli/commands/running_jobs.h"

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/context.h"
#include "services/cli/rest.h"
#include "services/stack/layout.h"
#include "services/stack/stack_user.h"
#include "shared/base/file.h"
#include "shared/http/client/client.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kCancelTimeMax{60};

// Of the stack itself, whatever --gateway or ATOLL_GATEWAY name.
Result<http::Client> own_dispatch(const std::filesystem::path& state) {
    http::ClientOptions options;
    ATOLL_TRY(options.base_url, stack::local_gateway(state));
    options.base_url += "/dispatch";
    ATOLL_TRY(options.token, stack::read_token(stack::Layout{state}, "admin"));
    options.timeout = std::chrono::seconds(10);
    options.attempts_max = 1;
    return http::Client(std::move(options));
}

bool has_running_tasks(const json& job) {
    const json tasks = job.value("tasks", json::object());
    for (const auto& [kind, states] : tasks.items())
        if (states.contains("running")) return true;
    return false;
}

std::string waits_text(const json& job) {
    std::string lines;
    for (const json& one : job.value("waits", json::array()))
        lines += "\n  " + text(one, "facility") + ": " + wait_text(one);
    return lines;
}

Status await_end(http::Client& dispatch, const std::string& id) {
    const auto deadline = std::chrono::steady_clock::now() + kCancelTimeMax;
    while (true) {
        ATOLL_TRY(const json job, dispatch.get_json("/v1/jobs/" + segment(id)));
        if (!has_running_tasks(job)) return {};
        if (std::chrono::steady_clock::now() > deadline)
            return unavailable("job " + id + " is cancelled, but tasks of it do not end yet; `atoll round show " + id +
                               "` names them. Nothing was stopped" + waits_text(job));
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
}

}  // namespace

std::optional<std::vector<json>> unfinished_jobs(const std::filesystem::path& state) {
    if (!std::filesystem::exists(stack::Layout{state}.config("dispatch"))) return std::vector<json>();  // never started
    auto dispatch = own_dispatch(state);
    if (!dispatch.ok()) return {};
    const auto all = get_all(*dispatch, "/v1/jobs");
    if (!all.ok()) return {};
    std::vector<json> jobs;
    for (const json& job : *all)
        if (const std::string now = text(job, "state"); now == "running" || now == "paused") jobs.push_back(job);
    return jobs;
}

Status cancel_jobs(const std::filesystem::path& state, const std::vector<json>& jobs) {
    ATOLL_TRY(http::Client dispatch, own_dispatch(state));
    for (const json& job : jobs)
        ATOLL_RETURN_IF_ERROR(dispatch.post_json("/v1/jobs/" + segment(text(job, "id")) + "/cancel", json::object()));
    for (const json& job : jobs) {
        ATOLL_RETURN_IF_ERROR(await_end(dispatch, text(job, "id")));
        std::cerr << "  job " << text(job, "id") << " (" << text(job, "name") << "): cancelled\n";
    }
    return {};
}

std::string describe_jobs(const std::vector<json>& jobs) {
    std::string lines;
    for (const json& job : jobs)
        lines += "\n  " + text(job, "id") + "  " + text(job, "name") + ", " + text(job, "state");
    return lines;
}

}  // namespace atl::cli
