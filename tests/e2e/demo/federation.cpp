#include "tests/e2e/demo/federation.h"

#include <thread>

#include "shared/base/file.h"
#include "shared/base/id.h"

namespace atl::demo {
namespace {

using Clock = std::chrono::steady_clock;

bool is_final(const std::string& state) {
    return state == "completed" || state == "failed" || state == "cancelled";
}

}  // namespace

Result<StackAddress> read_stack(const std::filesystem::path& state) {
    ATOLL_TRY(const std::string text, read_file(state / "stack.json"));
    ATOLL_TRY(const json::Json stack, json::parse(text));
    ATOLL_TRY(std::string token, read_file(stack["tokens"]["admin"].get<std::string>()));
    while (!token.empty() && token.back() == '\n') token.pop_back();
    return StackAddress{stack["gateway"].get<std::string>(), stack["gateway_socket"].get<std::string>(),
                        std::move(token)};
}

Coordinator::Coordinator(const StackAddress& stack)
    : client_([&] {
          http::ClientOptions options;
          options.base_url = stack.socket;
          options.token = stack.token;
          return options;
      }()) {}

Status Coordinator::add_facility(const json::Json& facility) {
    ATOLL_RETURN_IF_ERROR(client_.post_json("/dispatch/v1/facilities", facility, new_id()));
    return {};
}

Status Coordinator::add_dataset(const json::Json& dataset) {
    ATOLL_RETURN_IF_ERROR(client_.post_json("/registry/v1/datasets", dataset, new_id()));
    return {};
}

Result<std::string> Coordinator::prepare(const json::Json& preparation) {
    ATOLL_TRY(const json::Json created, client_.post_json("/dispatch/v1/preparations", preparation, new_id()));
    return created["id"].get<std::string>();
}

Status Coordinator::await_preparation(const std::string& id, std::chrono::seconds timeout) {
    for (const auto deadline = Clock::now() + timeout; Clock::now() < deadline;) {
        ATOLL_TRY(const json::Json preparation, client_.get_json("/dispatch/v1/preparations/" + id));
        const std::string state = preparation["state"];
        if (state == "done") return {};
        if (state != "pending" && state != "running")
            return internal_error("preparation " + id + " " + state + ": " + preparation.value("error", ""));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return unavailable("preparation " + id + " did not end in time");
}

Result<std::string> Coordinator::submit(const json::Json& job) {
    ATOLL_TRY(const json::Json created, client_.post_json("/dispatch/v1/jobs", job, new_id()));
    return created["id"].get<std::string>();
}

Result<json::Json> Coordinator::job(const std::string& id) {
    return client_.get_json("/dispatch/v1/jobs/" + id);
}

Result<json::Json> Coordinator::rounds(const std::string& id) {
    return client_.get_json("/dispatch/v1/jobs/" + id + "/rounds");
}

Result<std::string> Coordinator::follow(const std::string& id, std::chrono::seconds timeout,
                                        const std::function<void(const json::Json&)>& on_event) {
    std::string after;
    for (const auto deadline = Clock::now() + timeout; Clock::now() < deadline;) {
        const auto page = client_.get_json("/dispatch/v1/jobs/" + id + "/events?limit=200&wait=5s&after=" + after);
        if (!page.ok()) {
            if (page.error().code != ErrorCode::kUnavailable) return page.error();
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            continue;
        }
        for (const json::Json& event : (*page)["items"]) on_event(event);
        if (!(*page)["next"].is_null()) after = (*page)["next"].get<std::string>();
        if (!(*page)["items"].empty()) continue;
        const auto state = job(id);
        if (state.ok() && is_final((*state)["state"])) return (*state)["state"].get<std::string>();
    }
    return unavailable("job " + id + " did not end in time");
}

}  // namespace atl::demo
