#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::dispatch {

// A log at a site.
struct LogSource {
    std::string heading;                        // without its line end
    std::function<Result<std::string>()> read;  // called once at most, on some thread
};

// Reads the logs some at a time, so that a site that does not answer keeps nobody from seeing the others', and puts
// each under its heading, in the order given; where one cannot be read, what is wrong stands in its place. None is
// begun after the deadline.
std::string gather_logs(const std::vector<LogSource>& sources, std::chrono::steady_clock::time_point deadline);

}  // namespace atl::dispatch
