#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/result.h"

// A stack whose components systemd starts, and starts again.
namespace atl::stack {

// Writes atoll.target and atoll-NAME.service for each component that stack.json names into the directory, and returns
// the files. `atoll` is the program that they run. The units are the system's where root writes them, else the user's.
Result<std::vector<std::filesystem::path>> write_units(const std::filesystem::path& state,
                                                       const std::filesystem::path& atoll,
                                                       const std::filesystem::path& directory);

// For the units: makes what the component needs and records this process as the component, which it is to become by
// the command line that is returned.
Result<std::vector<std::string>> become_component(const std::filesystem::path& state, const std::string& name);
// For the units: returns when the component is ready. kUnavailable: it is not in its time.
Status await_component(const std::filesystem::path& state, const std::string& name);

}  // namespace atl::stack
