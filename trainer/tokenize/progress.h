#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace atl::tokenize {

// How far a run of `tokenize` is. The rate and what remains are judged by this process's own work.
struct ProgressPoint {
    double elapsed_s = 0;
    double fraction_begun = 0;  // of the input that an earlier process had done, 0 to 1
    double fraction = 0;        // of the input that is done
    std::int64_t documents = 0;
    std::int64_t bytes = 0;  // of text, by this process
};
// "42 % done, 1200 documents, 3.1 MB of text, 1.55 MB/s, 0:03 left"
std::string to_string(const ProgressPoint& point);

// Lines on the log once the work has taken two seconds, then every two. Not thread-safe.
class Progress {
  public:
    explicit Progress(bool enabled) : enabled_(enabled) {}
    bool is_due();
    void show(ProgressPoint point) const;
    double elapsed_s() const;

  private:
    bool enabled_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    double next_s_ = 2.0;
};

}  // namespace atl::tokenize
