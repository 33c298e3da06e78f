#pragma once

#include <chrono>

namespace atl::train {

// Asks a run to stop after the step it is in: a batch system's signal or the run's own time limit.
class StopRequest {
  public:
    // From now on SIGTERM, SIGINT and SIGUSR1 (which mpirun hands on) are remembered instead of ending the process.
    // time_limit_s 0: none. One object a process.
    explicit StopRequest(double time_limit_s);
    ~StopRequest();
    StopRequest(const StopRequest&) = delete;
    StopRequest& operator=(const StopRequest&) = delete;

    // Whether to stop now, given that a step takes `step_s` seconds: there must be time for one more.
    bool wanted(double step_s) const;

  private:
    std::chrono::steady_clock::time_point start_;
    double time_limit_s_;
};

}  // namespace atl::train
