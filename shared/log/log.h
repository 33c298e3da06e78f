#pragma once

#include <spdlog/spdlog.h>

#include <cstddef>
#include <filesystem>
#include <string>

// Logging is spdlog itself: spdlog::info("…", …). This module sets it up once, in main().
namespace atl::log {

struct Options {
    std::string program;         // shown in every line
    std::string level = "info";  // trace debug info warn error
    bool json = false;           // one JSON object a line (services) or text for people (programs)
    // Where the lines go; empty: to standard error. Before the file has more than `file_bytes_max` it becomes
    // NAME.1.EXT, that one NAME.2.EXT, and so on to NAME.3.EXT.
    std::filesystem::path file = {};
    std::size_t file_bytes_max = std::size_t{64} << 20;
};

// Ends with a spdlog::spdlog_ex when the file cannot be opened. A message may contain any text: JSON lines stay one
// valid object each.
void set_up(const Options& options);

// Replaces bearer tokens (JWTs) in a text that may be logged, such as a command line or a remote's output.
std::string redact(std::string text);

}  // namespace atl::log
