#pragma once

#include <string>

namespace atl {

// From now on Ctrl-C prints these lines on standard error and ends the program with status 130: whoever stops looking
// is told what goes on without them. Once a process.
void say_on_interrupt(const std::string& lines);

}  // namespace atl
