#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "shared/http/client/client.h"
#include "shared/json/json.h"

// What a client of the coordinator does in a federation, through the gateway's REST API alone.
namespace atl::demo {

struct StackAddress {
    std::string gateway;  // for others
    std::string socket;   // for us
    std::string token;
};

// The address and the admin's token of a stack that `atoll up --state DIR` started.
Result<StackAddress> read_stack(const std::filesystem::path& state);

class Coordinator {
  public:
    explicit Coordinator(const StackAddress& stack);

    Status add_facility(const json::Json& facility);
    Status add_dataset(const json::Json& dataset);
    // Has a facility tokenise `input` with a model version's tokenizer; the preparation's id.
    Result<std::string> prepare(const json::Json& preparation);
    Status await_preparation(const std::string& id, std::chrono::seconds timeout);

    Result<std::string> submit(const json::Json& job);
    Result<json::Json> job(const std::string& id);
    Result<json::Json> rounds(const std::string& id);

    // Calls `on_event` for every event of a job, in order, until the job has ended; survives an unreachable
    // coordinator within the timeout. The job's final state: completed, failed or cancelled.
    Result<std::string> follow(const std::string& id, std::chrono::seconds timeout,
                               const std::function<void(const json::Json&)>& on_event);

  private:
    http::Client client_;
};

}  // namespace atl::demo
