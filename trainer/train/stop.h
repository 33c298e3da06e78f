#pragma once

#include <chrono>

namespace atl::train {

// Asks a run to stop after the step it is in: a batch system's signal or the run's own time limit. One object a
// process, made at its beginning.
class StopRequest {
  public:
    // From now on SIGTERM, SIGINT and SIGUSR1 (which mpirun hands on) are remembered instead of ending the process, and
    // time counts.
    StopRequest();
    ~StopRequest();
    StopRequest(const StopRequest&) = delete;
    StopRequest& operator=(const StopRequest&) = delete;

    bool signalled() const;
    // Whether to stop now: after a signal, or when less than `needed_s` is left of the limit (0: none).
    bool wanted(double time_limit_s, double needed_s) const;

  private:
    std::chrono::steady_clock::time_point start_;
};

}  // namespace atl::train
