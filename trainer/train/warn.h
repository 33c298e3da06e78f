#pragma once

#include <string>

namespace atl::train {

// The command that this process runs, for warn(). Before any thread starts.
void name_command(const std::string& name);

// What a user should know and no error is, on a line of standard error: "atoll-trainer train: MESSAGE".
void warn(const std::string& message);

}  // namespace atl::train
