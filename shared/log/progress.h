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

    // An earlier process did so much of the work: what is left is judged by what comes after it.
    void begin_at(double fraction) { begun_ = fraction; }
    // `fraction` of the work is done, 0 to 1; `what_else` is told with it. Cheap enough for an inner loop.
    void at(double fraction, const std::string& what_else = {});
    // What at() logs, when it is due: "eval: 42 % done, WHAT ELSE, 0:07 left".
    std::optional<std::string> line_at(double fraction, const std::string& what_else = {});
    double elapsed_s() const { return now_s_() - start_s_; }

  private:
    std::string what_;
    std::function<double()> now_s_;
    double start_s_;
    double next_s_;
    double begun_ = 0;
};

}  // namespace atl::log
