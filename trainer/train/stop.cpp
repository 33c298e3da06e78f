#include "trainer/train/stop.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace atl::train {
namespace {

std::atomic<bool> signal_came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler must not lock");

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void remember(int /*signal*/) {
    signal_came = true;
}

void handle(void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

sigset_t signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kSignals) sigaddset(&set, signal);
    return set;
}

// Has the handlers run on this thread, until it shall end.
void take_signals(const std::stop_token& end) {
    const sigset_t set = signals();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait(lock, end, [] { return false; });
}

}  // namespace

StopRequest::StopRequest() : start_(std::chrono::steady_clock::now()) {
    signal_came = false;
    handle(remember);
    const sigset_t set = signals();
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    taker_ = std::jthread(take_signals);
}

StopRequest::~StopRequest() {
    handle(SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopRequest::signalled() const {
    return signal_came;
}

bool StopRequest::wanted(double time_limit_s, double needed_s) const {
    if (signalled()) return true;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return time_limit_s > 0 && elapsed + needed_s > time_limit_s;
}

}  // namespace atl::train
