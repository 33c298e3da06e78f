#include "trainer/train/stop.h"

#include <csignal>

namespace atl::train {
namespace {

volatile std::sig_atomic_t signal_came = 0;

void remember(int /*signal*/) {
    signal_came = 1;
}

void handle(void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::StopRequest() : start_(std::chrono::steady_clock::now()) {
    signal_came = 0;
    handle(remember);
}

StopRequest::~StopRequest() {
    handle(SIG_DFL);
}

bool StopRequest::signalled() const {
    return signal_came != 0;
}

bool StopRequest::wanted(double time_limit_s, double needed_s) const {
    if (signalled()) return true;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return time_limit_s > 0 && elapsed + needed_s > time_limit_s;
}

}  // namespace atl::train
