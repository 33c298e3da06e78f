#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "shared/http/testing/test_server.h"

namespace atl::aggregation {

// Dispatch as aggregation asks it: it knows the closed rounds that it was told of.
class FakeDispatch {
  public:
    std::string url() const { return server_.url(); }
    void add(const json::Json& closed) {
        set(closed.at("job").get<std::string>() + "/" + closed.at("round").dump(), closed);
    }
    // What it says of the round "JOB/NUMBER".
    void set(const std::string& round, const json::Json& closed) {
        const std::lock_guard lock(mutex_);
        rounds_[round] = closed;
    }
    // What it says of all rounds from now on.
    void set_refusal(std::optional<Error> refusal) {
        const std::lock_guard lock(mutex_);
        refusal_ = std::move(refusal);
    }
    // From now on answers with this status and nothing else; 0: as it should.
    void set_trouble(int status) { trouble_ = status; }

  private:
    http::Response find(const std::string& round) {
        const std::lock_guard lock(mutex_);
        if (trouble_ != 0) return http::Response::empty(trouble_);
        const auto found = rounds_.find(round);
        if (!refusal_ && found != rounds_.end()) return http::Response::json(200, found->second);
        return http::Response::problem(refusal_.value_or(not_found("there is no such round", "id")), "");
    }

    std::mutex mutex_;
    std::map<std::string, json::Json> rounds_;
    std::optional<Error> refusal_;
    std::atomic<int> trouble_ = 0;
    http::TestServer server_{[this](http::Server& server) {
        server.route(
            http::Method::kGet, "/v1/jobs/:job/rounds/:round/updates", http::Access::open(),
            [this](const http::Request& asked) { return find(asked.param("job") + "/" + asked.param("round")); });
    }};
};

}  // namespace atl::aggregation
