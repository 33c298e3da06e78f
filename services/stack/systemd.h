#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/base/result.h"

// Runs the components of a stack under systemd, which restarts them.
namespace atl::stack {

// Writes atoll.target, atoll-renewal.service, and atoll-NAME.service for each component in stack.json into the
// directory and returns their paths. The units run the program `atoll`. They are system units that run as `user` if
// root writes them, else user units. `user` is who root found the stack to belong to: the directory may lie where that
// user can exchange it.
Result<std::vector<std::filesystem::path>> write_units(const std::filesystem::path& state,
                                                       const std::filesystem::path& atoll,
                                                       const std::filesystem::path& directory, const std::string& user);

// ExecStart of a unit: makes what the component needs, records this process as the component, and returns the command
// line that this process must execute.
Result<std::vector<std::string>> become_component(const std::filesystem::path& state, const std::string& name);
// ExecStartPost of a unit: returns when the component is ready. kUnavailable: it did not become ready in time.
Status await_component(const std::filesystem::path& state, const std::string& name);

}  // namespace atl::stack
