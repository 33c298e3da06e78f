#pragma once

#include <functional>
#include <optional>
#include <string>

namespace atl::log {

// "1:02:03", or "2:03" below an hour.
std::string duration_text(double seconds);

// How far a piece of work is, on the log: once it has taken two seconds, then every two. Not thread-safe.
class Progress {
  public:
    // `what` begins each line; `now_s` counts seconds (the steady clock, unless given).
    explicit Progress(std::string what, std::function<double()> now_s = {});

    // `fraction` of the work is done, 0 to 1. Cheap enough for an inner loop.
    void at(double fraction);
    // What at() logs, when it is due: "eval: 42 % done, 0:07 left".
    std::optional<std::string> line_at(double fraction);

  private:
    std::string what_;
    std::function<double()> now_s_;
    double start_s_;
    double next_s_;
};

}  // namespace atl::log
