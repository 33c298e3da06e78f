#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/json/json.h"

namespace atl::dispatch {

// A log at a site.
struct LogSource {
    json::Json place;                           // round, kind, facility, task, attempt, file
    std::function<Result<std::string>()> read;  // called once at most, on some thread
    bool is_optional = false;                   // left out where it is empty or cannot be read
};

// Reads the logs some at a time, so that a site that does not answer keeps nobody from seeing the others': each one's
// place with its "text", in the order given; where it cannot be read, with the "error" instead. None is begun after the
// deadline.
json::Json gather_logs(const std::vector<LogSource>& sources, std::chrono::steady_clock::time_point deadline);

// What gather_logs() gave, as people read it: each log under a heading.
std::string logs_text(const json::Json& logs);

}  // namespace atl::dispatch
