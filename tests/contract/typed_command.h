#pragma once

#include <string>
#include <vector>

namespace atl::contract {

// Where the words of a command go.
enum class Output { kTerminal, kPipe };

struct Answer {
    int exit_code = -1;    // 128 + signal when a signal ended it
    std::string out;       // a terminal shows both streams: all is here
    std::string err;       // of a pipe
    bool is_late = false;  // it did not end, or was silent, for a minute, and was killed
};

// What a person types. kTerminal: a terminal of 80 columns and 24 lines.
Answer type(const std::vector<std::string>& argv, Output output);
// As a person who looks on for a while: Ctrl-C once all of `awaited` was shown; if there is none, anything.
Answer type_and_interrupt(const std::vector<std::string>& argv, Output output,
                          const std::vector<std::string>& awaited = {});

}  // namespace atl::contract
