#pragma once

#include <string>

namespace atl::log {

// The program or command that this process runs, "atoll-trainer train", for warn(). Before any thread starts.
void name_command(const std::string& name);

// What a user should know and no error is, on a line of standard error: "NAME: MESSAGE".
void warn(const std::string& message);

}  // namespace atl::log
