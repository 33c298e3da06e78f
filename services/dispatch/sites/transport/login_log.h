#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <vector>

#include "shared/base/file.h"

namespace atl::dispatch {

// When somebody was last logged in, or a machine logged in to, in a file beside the connections' sockets: it counts on
// over the restarts of this program, until the machine's. Who holds it is the one who may log in now.
class LoginLog {
  public:
    // Waits for whoever holds it, here or in another process, as long as a login takes or until then.
    static Result<LoginLog> open(const std::filesystem::path& file, const std::stop_token& stop,
                                 std::chrono::steady_clock::time_point until);

    // How long until one more is allowed, of so many in that time; 0: now.
    std::chrono::milliseconds wait(std::int64_t logins_max, std::chrono::milliseconds window) const;
    Result<std::int64_t> add();            // what take_back() takes
    Status take_back(std::int64_t login);  // it did not reach the site

    // How many the file names within that time. Takes no lock: for who only shows it.
    static std::int64_t count(const std::filesystem::path& file, std::chrono::milliseconds window);

  private:
    LoginLog(std::filesystem::path file, UniqueFd fd) : file_(std::move(file)), fd_(std::move(fd)) {}
    Status write() const;

    std::filesystem::path file_;
    UniqueFd fd_;
    std::vector<std::int64_t> times_ms_;  // by the steady clock, ascending
};

}  // namespace atl::dispatch
