#include "services/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <streambuf>
#include <string>
#include <utility>

#include "shared/json/printable.h"
#include "shared/json/printable_line.h"

namespace atl::cli {

class PrintableOutput::Filter : public std::streambuf {
  public:
    explicit Filter(std::streambuf* to) : to_(to) {}

    std::streambuf* target() const { return to_; }
    void write_as_it_is(std::string_view bytes) {
        const std::lock_guard lock(mutex_);
        put(std::exchange(held_, {}));  // a character that was never finished
        write(bytes);
    }
    void finish() {
        const std::lock_guard lock(mutex_);
        put(std::exchange(held_, {}));
        judge(to_->pubsync() == 0);
    }
    int error() const { return error_; }

  protected:
    std::streamsize xsputn(const char* data, std::streamsize count) override {
        const std::lock_guard lock(mutex_);
        held_.append(data, static_cast<std::size_t>(count));
        const std::size_t whole = held_.size() - atl::json::incomplete_tail(held_);
        const bool is_written = put(std::string_view(held_).substr(0, whole));
        held_.erase(0, whole);
        return is_written ? count : 0;
    }
    int_type overflow(int_type c) override {
        if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
        const char byte = traits_type::to_char_type(c);
        return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
    }
    int sync() override {
        const std::lock_guard lock(mutex_);
        return judge(to_->pubsync() == 0) ? 0 : -1;
    }

  private:
    bool put(std::string_view bytes) { return write(atl::json::printable(bytes)); }
    bool write(std::string_view bytes) {
        const auto size = static_cast<std::streamsize>(bytes.size());
        return judge(to_->sputn(bytes.data(), size) == size);
    }
    // Whoever reads no more, as `head`, ends the program as any other of a pipe. (libcurl has SIGPIPE ignored.)
    bool judge(bool is_written) {
        if (is_written) return true;
        if (error_ == 0) error_ = errno;
        if (errno == EPIPE) {
            std::signal(SIGPIPE, SIG_DFL);
            ::raise(SIGPIPE);
        }
        return false;
    }

    std::streambuf* to_;
    std::mutex mutex_;
    std::string held_;  // the begin of a character, at most three bytes between writes
    int error_ = 0;     // errno of the first write that failed
};

PrintableOutput::PrintableOutput(std::ostream& stream)
    : stream_(stream), filter_(std::make_unique<Filter>(stream.rdbuf())) {
    stream_.rdbuf(filter_.get());
}

PrintableOutput::~PrintableOutput() {
    filter_->finish();
    stream_.rdbuf(filter_->target());
}

int PrintableOutput::finish() {
    filter_->finish();
    return filter_->error();
}

void write_as_it_is(std::ostream& stream, std::string_view bytes) {
    if (auto* filter = dynamic_cast<PrintableOutput::Filter*>(stream.rdbuf()))
        filter->write_as_it_is(bytes);
    else
        stream << bytes;
}

bool is_terminal_output() {
    return ::isatty(STDOUT_FILENO) == 1;
}

bool interactive() {
    const char* terminal = std::getenv("TERM");
    return is_terminal_output() && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t terminal_columns() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::ptrdiff_t rows_on_terminal(std::string_view lines, std::size_t columns) {
    std::size_t rows = 0;
    std::size_t width = 0;
    for (const char byte : lines) {
        if (byte == '\n') {
            rows += columns == 0 || width == 0 ? 1 : (width + columns - 1) / columns;
            width = 0;
        } else if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80) {  // not in the middle of a code point
            ++width;
        }
    }
    return static_cast<std::ptrdiff_t>(rows);
}

}  // namespace atl::cli
