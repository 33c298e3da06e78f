#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <thread>

namespace atl::train {

// What the parts of a run took last, and so what the next ones need of the time that is left. Saving is in each: the
// run must still be able to stop.
struct LastTimes {
    double step_s = 0;
    double validation_s = 0;
    double save_s = 0;  // of the state; before the first, what loading took

    double needed_for_step(bool validates_after) const {
        return step_s + (validates_after ? validation_s : 0) + save_s;
    }
    // Of a validation, whose longest batch so far is given.
    double needed_for_batch(double longest_s) const { return longest_s + save_s; }
};

// What stops a run before its last step.
enum class StopCause : std::uint8_t { kNone, kTimeLimit, kFile, kSigusr1, kSigint, kSigterm };
std::string_view to_string(StopCause cause);  // as a user knows it: "SIGTERM"

// Asks a run to stop after the step it is in: a batch system's signal, a file, or the run's own time limit. One object
// a process, made before MPI and every thread that computes.
class StopRequest {
  public:
    // From now on SIGTERM, SIGINT and SIGUSR1 (which mpirun hands on) are remembered instead of ending the process, and
    // time counts. No thread that computes ever runs a handler: oneDNN's products for AVX-512 have their stack pointer
    // within a workspace on the heap, and the frame of a handler would be written over what lies before it. So this
    // thread, and those that it starts from now on, block these signals; one that only sleeps takes them.
    StopRequest();
    // There is nothing left to stop: from here on they are ignored, as they would make a run that ended well fail while
    // MPI winds up.
    ~StopRequest();
    StopRequest(const StopRequest&) = delete;
    StopRequest& operator=(const StopRequest&) = delete;

    // From now on the run is also asked to stop by this file being there. The thread that sleeps looks for it, every
    // half second: no step waits for a file system that hangs, only the end does. One rank is enough; once.
    void watch(std::filesystem::path file);

    // The signal or the file that came first.
    StopCause told() const;
    // Why to stop now: what told() says, or as less than `needed_s` is left of the limit (0: none).
    StopCause wanted(double time_limit_s, double needed_s) const;

  private:
    void take_signals(const std::stop_token& end);

    std::chrono::steady_clock::time_point start_;
    sigset_t before_{};  // what this thread blocked
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::filesystem::path file_;  // under mutex_; empty: none
    std::jthread taker_;          // the last member: it uses the others
};

}  // namespace atl::train
