#include "trainer/train/stop.h"

#include <atomic>
#include <utility>

namespace atl::train {
namespace {

std::atomic<bool> is_told = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler must not lock");

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void remember(int /*signal*/) {
    is_told = true;
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

constexpr auto kLookInterval = std::chrono::milliseconds(500);

}  // namespace

double Pace::step_s(double now_s, std::int64_t step) {
    if (step == since_steps_) return step_s_;
    const bool is_first = step_s_ == 0;
    step_s_ = (now_s - since_s_) / static_cast<double>(step - since_steps_);
    if (is_first) {
        since_s_ = now_s;
        since_steps_ = step;
    }
    return step_s_;
}

StopRequest::StopRequest() : start_(std::chrono::steady_clock::now()) {
    is_told = false;
    handle(remember);
    const sigset_t set = signals();
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    taker_ = std::jthread([this](const std::stop_token& end) { take_signals(end); });
}

StopRequest::~StopRequest() {
    handle(SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

// Has the handlers run on this thread, until it shall end.
void StopRequest::take_signals(const std::stop_token& end) {
    const sigset_t set = signals();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, end, [this] { return !file_.empty(); });
    const std::filesystem::path file = file_;
    while (!end.stop_requested() && !is_told) {
        std::error_code error;  // a file that cannot be looked for is not there
        lock.unlock();
        if (std::filesystem::exists(file, error)) is_told = true;
        lock.lock();
        changed_.wait_for(lock, end, kLookInterval, [] { return false; });
    }
    changed_.wait(lock, end, [] { return false; });
}

void StopRequest::watch(std::filesystem::path file) {
    const std::scoped_lock lock(mutex_);
    file_ = std::move(file);
    changed_.notify_all();
}

bool StopRequest::told() const {
    return is_told;
}

bool StopRequest::wanted(double time_limit_s, double needed_s) const {
    if (told()) return true;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return time_limit_s > 0 && elapsed + needed_s > time_limit_s;
}

}  // namespace atl::train
