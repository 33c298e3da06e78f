#include "trainer/train/stop.h"

#include <atomic>
#include <utility>

namespace atl::train {
namespace {

std::atomic<StopCause> told_by = StopCause::kNone;
static_assert(std::atomic<StopCause>::is_always_lock_free, "a handler must not lock");

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void remember(StopCause cause) {
    StopCause none = StopCause::kNone;
    told_by.compare_exchange_strong(none, cause);
}

void remember_signal(int signal) {
    if (signal == SIGTERM) return remember(StopCause::kSigterm);
    remember(signal == SIGINT ? StopCause::kSigint : StopCause::kSigusr1);
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

std::string_view to_string(StopCause cause) {
    switch (cause) {
        case StopCause::kTimeLimit:
            return "--time-limit";
        case StopCause::kFile:
            return "the file that ATOLL_STOP_FILE names (remove it before the run goes on)";
        case StopCause::kSigusr1:
            return "SIGUSR1";
        case StopCause::kSigint:
            return "SIGINT";
        case StopCause::kSigterm:
            return "SIGTERM";
        case StopCause::kNone:
            break;
    }
    return "nothing";
}

StopRequest::StopRequest() : start_(std::chrono::steady_clock::now()) {
    told_by = StopCause::kNone;
    handle(remember_signal);
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
    while (!end.stop_requested() && told_by == StopCause::kNone) {
        std::error_code error;  // a file that cannot be looked for is not there
        lock.unlock();
        if (std::filesystem::exists(file, error)) remember(StopCause::kFile);
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

StopCause StopRequest::told() const {
    return told_by;
}

StopCause StopRequest::wanted(double time_limit_s, double needed_s) const {
    if (told() != StopCause::kNone) return told();
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return time_limit_s > 0 && elapsed + needed_s > time_limit_s ? StopCause::kTimeLimit : StopCause::kNone;
}

}  // namespace atl::train
