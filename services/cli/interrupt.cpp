#include "services/cli/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace atl::cli {
namespace {

constexpr int kInterrupted = 128 + SIGINT;

// Written before the handler is set, only read by it.
std::string& farewell() {
    static std::string lines;
    return lines;
}
const std::string* said = nullptr;

// Only what a signal handler may do.
void on_interrupt(int) {
    if (::write(STDERR_FILENO, said->data(), said->size()) < 0) ::_exit(kInterrupted);
    ::_exit(kInterrupted);
}

}  // namespace

void say_on_interrupt(const std::string& lines) {
    farewell() = "\n" + lines + "\n";
    said = &farewell();
    std::signal(SIGINT, on_interrupt);
}

}  // namespace atl::cli
