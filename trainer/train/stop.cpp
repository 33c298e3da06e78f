#include "trainer/train/stop.h"

#include <csignal>

namespace atl::train {
namespace {

volatile std::sig_atomic_t signalled = 0;

void remember(int /*signal*/) {
    signalled = 1;
}

void handle(void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::StopRequest(double time_limit_s) : start_(std::chrono::steady_clock::now()), time_limit_s_(time_limit_s) {
    signalled = 0;
    handle(remember);
}

StopRequest::~StopRequest() {
    handle(SIG_DFL);
}

bool StopRequest::wanted(double step_s) const {
    if (signalled != 0) return true;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return time_limit_s_ > 0 && elapsed + step_s > time_limit_s_;
}

}  // namespace atl::train
