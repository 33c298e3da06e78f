#pragma once

#include <string>

#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// How a script travels: the site starts `bootstrap` (a fixed command apart from a byte count, so that any login shell
// takes it), which reads the program's text from standard input byte by byte and leaves the rest of the stream as the
// script's own input. The script's output stands between two marks that carry a nonce, the second with its exit
// status: banners of the site's shell files do not matter, and output without the closing mark means "unknown".
struct FramedScript {
    std::string bootstrap;  // for `sh -c`
    std::string stream;     // standard input: program, then the script's input
};

FramedScript frame(const RemoteScript& script, const std::string& nonce);

// `raw` is what the transport's process gave. kUnavailable when the closing mark is missing.
Result<CommandResult> unframe(CommandResult raw, const std::string& nonce);

// The text as one word of a POSIX shell.
std::string shell_quote(const std::string& text);

}  // namespace atl::dispatch
