#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shared/json/json.h"

namespace atl::demo {

// Runs a program to its end with its standard error on ours; an Error that shows the command and its last words unless
// it exits 0. Returns its standard output.
Result<std::string> run_program(const std::vector<std::string>& argv, const std::string& input = {});

// The last line of a program's output as JSON, such as the trainer's summary.
Result<json::Json> last_json_line(const std::string& output);

// Runs a program with our own terminal, so that its live display works. Its exit status.
int run_attached(const std::vector<std::string>& argv);

}  // namespace atl::demo
