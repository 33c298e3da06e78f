#pragma once

#include <string>
#include <vector>

#include "shared/base/result.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace atl::cli {

// What is wrong with a command line that CLI11 refused: the word or flag that nobody knows with the nearest that is
// known, a command that lacks its verb, or else CLI11's own words. kInvalidArgument.
Error explain_usage(const CLI::App& program, int argc, const char* const* argv, const std::string& refusal);

// `atoll help job watch` is `atoll job watch --help`, also behind the program's own flags. kInvalidArgument: there is
// no such command.
Result<std::vector<const char*>> with_help_as_flag(const CLI::App& program, std::vector<const char*> words);

// The words of a command line, where a flag with _ for - is the flag: "--output_model".
std::vector<std::string> with_dashes(const CLI::App& program, const std::vector<const char*>& words);

// The values that a flag with an address takes: http:// or https://.
CLI::Validator web_address();

// Gives a command the end of its --help: "Example:" and the lines.
void set_example(CLI::App& command, const std::string& lines);

}  // namespace atl::cli
