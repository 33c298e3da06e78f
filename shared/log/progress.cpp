#include "shared/log/progress.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include "shared/log/log.h"

namespace atl::log {
namespace {

constexpr double kPause = 2.0;  // seconds

double steady_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string duration_text(double seconds) {
    const std::int64_t whole = std::llround(seconds);
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

Progress::Progress(std::string what, std::function<double()> now_s)
    : what_(std::move(what)),
      now_s_(now_s ? std::move(now_s) : steady_s),
      start_s_(now_s_()),
      next_s_(start_s_ + kPause) {}

void Progress::at(double fraction, const std::string& what_else) {
    if (const auto line = line_at(fraction, what_else)) spdlog::info("{}", *line);
}

std::optional<std::string> Progress::line_at(double fraction, const std::string& what_else) {
    const double now = now_s_();
    if (now < next_s_) return std::nullopt;
    next_s_ = now + kPause;
    std::string line = fmt::format("{}: {:.0f} % done", what_, 100.0 * fraction);
    if (!what_else.empty()) line += ", " + what_else;
    const double done = fraction - begun_;
    if (done > 0) line += ", " + duration_text((now - start_s_) * (1.0 - fraction) / done) + " left";
    return line;
}

}  // namespace atl::log
