#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shared/base/result.h"

// The command line of atoll-trainer: a table of commands, each declaring its flags. Only cli.cpp knows the parser.
namespace atl::program {

struct Flag {
    using Assign = std::function<Status(std::string_view)>;  // gets the text, may refuse it
    using Target = std::variant<std::string*, std::int64_t*, double*, bool*, std::filesystem::path*,
                                std::vector<std::filesystem::path>*, Assign>;  // lists: by commas, spaces or again
    std::string name;                                                          // "warmup-steps"
    std::string help;
    Target target;
    bool required = false;
    bool is_switch = false;  // takes no value: an Assign gets "true"; bool targets always are
    // What --help shows of an Assign's value: its kind ("INT", "on|off") and its default, if it is worth showing. Those
    // of other targets follow from the target.
    std::string kind = "TEXT";
    std::string fallback = {};
    std::string group = "Options";  // heads a part of --help; empty: not shown there
    bool is_positional = false;     // given without its name
};

class Command {
  public:
    virtual ~Command() = default;
    virtual std::vector<Flag> flags() = 0;
    virtual Status run() = 0;
};

struct CommandEntry {
    const char* name;
    const char* summary;
    const char* example;
    std::unique_ptr<Command> (*make)();
    // Knows nothing of ranks: where a launcher starts several processes, the first one does it all.
    bool is_of_one_process = false;
};

// 0 success, those of run_settings/exit_codes.h, 1 any other failure.
int exit_code(const Status& status);

// Parses, runs and reports: an error is one line on standard error, "atoll-trainer COMMAND: FIELD: message", of the
// first rank alone. Standard output that could not be written is a failure too, of which nothing is said where its
// reader has gone.
int run_command_line(int argc, char** argv, std::span<const CommandEntry> commands);

}  // namespace atl::program
