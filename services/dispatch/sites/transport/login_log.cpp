#include "services/dispatch/sites/transport/login_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "shared/base/file_lock.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::seconds kLockTimeMax{90};  // more than a login takes
constexpr std::size_t kLoginsKept = 1000;

std::int64_t steady_now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Ascending. A later time than now is of before the machine's start.
std::vector<std::int64_t> read_times(const std::string& text) {
    std::vector<std::int64_t> times_ms;
    std::istringstream lines(text);
    for (std::int64_t time = 0, now = steady_now_ms(); lines >> time;)
        if (time <= now) times_ms.push_back(time);
    std::sort(times_ms.begin(), times_ms.end());
    return times_ms;
}

}  // namespace

Result<LoginLog> LoginLog::open(const std::filesystem::path& file, const std::stop_token& stop,
                                std::chrono::steady_clock::time_point until) {
    LoginLog log(file, UniqueFd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
    if (!log.fd_.valid()) return file_error(file, "open");
    const auto deadline = std::min(std::chrono::steady_clock::now() + kLockTimeMax, until);
    while (!try_lock(log.fd_)) {
        if (stop.stop_requested() || std::chrono::steady_clock::now() > deadline)
            return unavailable("another process is logging in");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ATOLL_TRY(const std::string text, read_file(file));
    log.times_ms_ = read_times(text);
    return log;
}

std::int64_t LoginLog::count(const std::filesystem::path& file, std::chrono::milliseconds window) {
    const auto text = read_file(file);
    if (!text.ok()) return 0;
    const std::int64_t oldest = steady_now_ms() - window.count();
    return std::ranges::count_if(read_times(*text), [&](std::int64_t time) { return time > oldest; });
}

std::chrono::milliseconds LoginLog::wait(std::int64_t logins_max, std::chrono::milliseconds window) const {
    const auto max = static_cast<std::size_t>(logins_max);
    if (times_ms_.size() < max) return std::chrono::milliseconds(0);
    const std::int64_t free_ms = times_ms_[times_ms_.size() - max] + window.count();
    return std::chrono::milliseconds(std::max<std::int64_t>(free_ms - steady_now_ms(), 0));
}

Result<std::int64_t> LoginLog::add() {
    times_ms_.push_back(steady_now_ms());
    if (times_ms_.size() > kLoginsKept) times_ms_.erase(times_ms_.begin());
    ATOLL_RETURN_IF_ERROR(write());
    return times_ms_.back();
}

Status LoginLog::take_back(std::int64_t login) {
    const auto at = std::find(times_ms_.begin(), times_ms_.end(), login);
    if (at != times_ms_.end()) times_ms_.erase(at);
    return write();
}

Status LoginLog::write() const {
    std::string text;
    for (const auto time : times_ms_) text += std::to_string(time) + "\n";
    if (::ftruncate(fd_.get(), 0) != 0) return file_error(file_, "write");
    return write_at(fd_.get(), 0, text, file_);
}

}  // namespace atl::dispatch
