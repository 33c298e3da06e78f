#pragma once

#include <spdlog/spdlog.h>

#include <string>

// Logging is spdlog itself: spdlog::info("…", …). This module sets it up once, in main().
namespace atl::log {

struct Options {
    std::string program;         // shown in every line
    std::string level = "info";  // trace debug info warn error
    bool json = false;           // one JSON object a line (services) or text for people (programs)
};

// Logs go to standard error. A message may contain any text: JSON lines stay one valid object each.
void set_up(const Options& options);

// Replaces bearer tokens (JWTs) in a text that may be logged, such as a command line or a remote's output.
std::string redact(std::string text);

}  // namespace atl::log
