#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// How a script travels: the site starts `bootstrap` (a fixed command apart from a byte count, so that any login shell
// takes it), which reads the program's text from standard input byte by byte and leaves the rest of the stream as the
// script's own input. The script's output stands between two marks that carry a nonce, the second with its exit
// status: banners of the site's shell files do not matter, and output without the closing mark means "unknown".
struct FramedScript {
    std::string bootstrap;  // `sh -c` runs it
    std::string stream;     // standard input: program, then the script's input
};

FramedScript frame(const RemoteScript& script, const std::string& nonce);

// `raw` is what the transport's process gave. kUnavailable when the closing mark is missing.
Result<CommandResult> unframe(CommandResult raw, const std::string& nonce);

// Takes apart what the script's process prints as it comes: what stands between the marks goes to `sink`.
class StreamedFrame {
  public:
    StreamedFrame(const std::string& nonce, std::function<bool(std::string_view)> sink);
    bool take(std::string_view bytes);  // what the sink has said last
    // What is left for unframe(): the marks.
    std::string rest() const;

  private:
    enum class Place { kBefore, kWithin, kAfter };
    const std::string begin_;
    const std::string end_;
    const std::function<bool(std::string_view)> sink_;
    Place place_ = Place::kBefore;
    std::string pending_;  // which may hold the beginning of a mark
};

// Runs the script by the shell that `argv` leads to; that command's process is what is waited for. Where there is no
// answer, `explain` makes an error of what the process left behind.
using Explain = std::function<Error(const CommandResult& raw, Error no_answer)>;
Result<CommandResult> run_framed(const RemoteScript& script, std::vector<std::string> argv, const std::stop_token& stop,
                                 const Explain& explain = {});

// The last line of what a program said, as it may stand in a message.
std::string last_line(std::string text);

// The text as one word of a POSIX shell.
std::string shell_quote(const std::string& text);

}  // namespace atl::dispatch
