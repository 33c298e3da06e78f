#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/result.h"

// The jobs of the stack on this machine that are not at their end: their batch jobs at the facilities outlive it.
namespace atl::cli {

// Running and paused ones, as dispatch lists them. None without a value: dispatch does not answer, so nobody knows.
std::optional<std::vector<nlohmann::json>> unfinished_jobs(const std::filesystem::path& state);

// Cancels them and waits until no task of theirs runs at a facility. kUnavailable names a job that did not get there in
// a minute.
Status cancel_jobs(const std::filesystem::path& state, const std::vector<nlohmann::json>& jobs);

// A line each, after a newline: "  ID  NAME, running".
std::string describe_jobs(const std::vector<nlohmann::json>& jobs);

}  // namespace atl::cli
