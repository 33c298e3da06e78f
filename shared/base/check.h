#pragma once

#include <functional>
#include <source_location>
#include <string_view>

namespace atl {

// A programmer's error: prints why and where, calls the abort handler, then aborts. Never used for bad input.
void check(bool condition, std::string_view why, std::source_location where = std::source_location::current());

// Called by check() before abort(). The trainer sets one that calls MPI_Abort: one dying rank would leave the rest
// waiting for ever. Set once, before threads start.
void set_abort_handler(std::function<void()> handler);

}  // namespace atl
