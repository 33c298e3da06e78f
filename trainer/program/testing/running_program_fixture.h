#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "trainer/program/testing/program_fixture.h"

namespace atl::program {

inline constexpr std::chrono::minutes kPatience{3};  // of a test on a busy machine

// Looks at atoll-trainer while it runs.
class RunningProgramTest : public ProgramTest {
  protected:
    // Waits until the file holds `what`; false after some minutes.
    static bool wait_for(const std::string& file, const std::string& what);

    // Starts a run that never ends by itself, which logs to `log`, and waits for its first step.
    pid_t start_endless(int ranks, const std::vector<std::string>& more = {}) const;

    // The exit status of a child; fails the test after some minutes.
    static int wait_exit(pid_t child);
};

}  // namespace atl::program
