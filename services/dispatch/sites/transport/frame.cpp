#include "services/dispatch/sites/transport/frame.h"

#include <charconv>

#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kLineBytesMax = 500;

std::string begin_mark(const std::string& nonce) {
    return "@@atoll-begin-" + nonce;
}

std::string end_mark(const std::string& nonce) {
    return "@@atoll-end-" + nonce;
}

// The last line of the remote's error output, for messages.
std::string last_line(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    const std::size_t begin = text.rfind('\n');
    const std::string line = log::redact(json::printable(begin == std::string::npos ? text : text.substr(begin + 1)));
    return shorten(line, kLineBytesMax);
}

}  // namespace

std::string shell_quote(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) {
        if (c == '\'')
            quoted += "'\\''";
        else
            quoted += c;
    }
    return quoted + "'";
}

FramedScript frame(const RemoteScript& script, const std::string& nonce) {
    // Inside braces, a program cut short on its way is a syntax error or does nothing.
    std::string program = "atoll_main() {\nset --";
    for (const auto& argument : script.arguments) program += " " + shell_quote(argument);
    program += "\n" + script.text + "\n}\n";
    program += "{ printf '\\n%s\\n' '" + begin_mark(nonce) + "'; ( atoll_main ); printf '\\n%s %d\\n' '" +
               end_mark(nonce) + "' \"$?\"; }\n";
    FramedScript framed;
    framed.bootstrap = "eval \"$(dd bs=1 count=" + std::to_string(program.size()) + " 2>/dev/null)\"";
    framed.stream = std::move(program) + script.input;
    return framed;
}

Result<CommandResult> unframe(CommandResult raw, const std::string& nonce) {
    const std::string begin = "\n" + begin_mark(nonce) + "\n";
    const std::string end = "\n" + end_mark(nonce) + " ";
    const std::size_t from = raw.out.find(begin);
    const std::size_t to = raw.out.rfind(end);
    if (from == std::string::npos || to == std::string::npos || to + 1 < from + begin.size()) {
        const std::string why = raw.timed_out ? "it timed out" : "exit status " + std::to_string(raw.exit_code);
        return no_answer("no complete answer from the facility: " + why + ": " + last_line(raw.err));
    }
    int status = -1;
    const char* digits = raw.out.data() + to + end.size();
    std::from_chars(digits, raw.out.data() + raw.out.size(), status);
    raw.exit_code = status;
    raw.timed_out = false;
    const std::size_t text = from + begin.size();
    raw.out = to > text ? raw.out.substr(text, to - text) : std::string();
    return raw;
}

}  // namespace atl::dispatch
