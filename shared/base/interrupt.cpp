#include "shared/base/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace atl {
namespace {

constexpr int kInterrupted = 128 + SIGINT;

const std::string* message = nullptr;  // written before the handler is set, only read by it

// Only what a signal handler may do.
void on_interrupt(int) {
    if (::write(STDERR_FILENO, message->data(), message->size()) < 0) ::_exit(kInterrupted);
    ::_exit(kInterrupted);
}

}  // namespace

void say_on_interrupt(const std::string& lines) {
    static std::string text;
    text = "\n" + lines + "\n";
    message = &text;
    std::signal(SIGINT, on_interrupt);
}

}  // namespace atl
