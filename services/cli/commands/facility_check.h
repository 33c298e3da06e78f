#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/context.h"

namespace atl::cli {

struct CheckFlags {
    std::string name;
    bool job = false;  // in a batch job, too:
    std::string queue;
    int gpus = 0;  // a node
    int wait_minutes = 10;
};

// What `facility check` looks at, with what it does meanwhile on standard error. kUnavailable: something failed.
Status run_check(const Context& context, const CheckFlags& flags);

// The rows {name, state, seen, mend} as a table of lines of at most `width` characters (0: any): what mends a row
// stands on a line of its own, whole. A failure whose `mend` is empty gets general advice; one without that member says
// what to do itself.
std::string check_table(const nlohmann::json& rows, std::size_t width);

// $COLUMNS, or the terminal's; 0: there is none.
std::size_t terminal_width();

}  // namespace atl::cli
