#include "services/dispatch/sites/transport/frame.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "shared/base/id.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kLineBytesMax = 500;
constexpr std::size_t kOutputBytesMax = 4U << 20;
constexpr std::size_t kRestBytesMax = 4U << 10;  // after the closing mark: its status, what a shell says at its end

std::string begin_mark(const std::string& nonce) {
    return "@@atoll-begin-" + nonce;
}

std::string end_mark(const std::string& nonce) {
    return "@@atoll-end-" + nonce;
}

// As they are printed.
std::string begin_line(const std::string& nonce) {
    return "\n" + begin_mark(nonce) + "\n";
}

std::string end_of_output(const std::string& nonce) {
    return "\n" + end_mark(nonce) + " ";
}

}  // namespace

std::string last_line(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    const std::size_t begin = text.rfind('\n');
    const std::string line = log::redact(json::printable(begin == std::string::npos ? text : text.substr(begin + 1)));
    return shorten(line, kLineBytesMax);
}

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
    const std::string begin = begin_line(nonce);
    const std::string end = end_of_output(nonce);
    const std::size_t from = raw.out.find(begin);
    const std::size_t to = raw.out.rfind(end);
    if (from == std::string::npos || to == std::string::npos || to + 1 < from + begin.size()) {
        const std::string why = raw.timed_out ? "it timed out" : "exit status " + std::to_string(raw.exit_code);
        std::string said = last_line(raw.err);
        if (said.empty() && from == std::string::npos) said = last_line(raw.out);  // a locked account's shell says why
        return no_answer("no complete answer from the facility: " + why + (said.empty() ? "" : ": " + said));
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

StreamedFrame::StreamedFrame(const std::string& nonce, std::function<bool(std::string_view)> sink)
    : begin_(begin_line(nonce)), end_(end_of_output(nonce)), sink_(std::move(sink)) {}

bool StreamedFrame::take(std::string_view bytes) {
    if (place_ == Place::kAfter) {
        pending_.append(bytes.substr(0, kRestBytesMax - std::min(kRestBytesMax, pending_.size())));
        return true;
    }
    pending_.append(bytes);
    const auto keep_last = [&](std::size_t count) {
        pending_.erase(0, pending_.size() - std::min(count, pending_.size()));
    };
    if (place_ == Place::kBefore) {
        const std::size_t found = pending_.find(begin_);
        keep_last(found == std::string::npos ? begin_.size() - 1 : pending_.size() - found - begin_.size());
        if (found == std::string::npos) return true;
        place_ = Place::kWithin;
    }
    const std::size_t found = pending_.find(end_);
    if (found != std::string::npos) place_ = Place::kAfter;
    const std::size_t left = std::min(pending_.size(), end_.size() - 1);
    const std::size_t passed = found != std::string::npos ? found : pending_.size() - left;
    const bool goes_on = passed == 0 || sink_(std::string_view(pending_).substr(0, passed));
    keep_last(pending_.size() - passed);
    return goes_on;
}

std::string StreamedFrame::rest() const {
    if (place_ == Place::kBefore) return {};
    return place_ == Place::kAfter ? begin_ + pending_ : begin_;
}

Result<CommandResult> run_framed(const RemoteScript& script, std::vector<std::string> argv, const std::stop_token& stop,
                                 const Explain& explain) {
    const std::string nonce = random_hex(8);
    const FramedScript framed = frame(script, nonce);
    if (argv.empty())
        argv = {"sh", "-c", framed.bootstrap};
    else
        argv.push_back("sh -c " + shell_quote(framed.bootstrap));
    CommandOptions options;
    options.input = framed.stream;
    options.timeout = script.timeout;
    options.stop = stop;
    options.output_bytes_max = kOutputBytesMax;
    options.source = script.source;
    StreamedFrame streamed(nonce, script.sink);
    if (script.sink) options.sink = [&](std::string_view bytes) { return streamed.take(bytes); };
    auto raw = run_command(argv, options);
    if (!raw.ok()) return no_answer("cannot start " + argv.front() + ": " + raw.error().message);
    if (script.sink) raw->out = streamed.rest();
    auto answer = unframe(*raw, nonce);
    if (answer.ok()) return answer;
    return explain ? explain(*raw, answer.error()) : answer.error();
}

}  // namespace atl::dispatch
