#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shared/http/client/client.h"

namespace atl::service {

// For tests: whether the answers of a service are what its OpenAPI document says. Thread-safe.
class ResponseCheck {
  public:
    explicit ResponseCheck(std::string_view document);

    // What in an answer is not as the document says, one sentence each: its operation and status are described, its
    // type is one of those of the description, a JSON body fits the schema. `path` as it was asked for, with its query.
    std::vector<std::string> faults(http::Method method, const std::string& path, const http::ClientResponse& answer);

    // The described GET operations under /v1 of which no 2xx answer was looked at.
    std::vector<std::string> unread() const;

  private:
    const json::Json* find_operation(http::Method method, const std::string& path, std::string& name) const;

    json::Json document_;
    mutable std::mutex mutex_;
    std::set<std::string> read_;
};

}  // namespace atl::service
