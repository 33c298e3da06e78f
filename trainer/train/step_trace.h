#pragma once

#include <cstdint>

#include "shared/run_settings/run_settings.h"
#include "trainer/comm/comm.h"

namespace atl::train {

// The traces that --trace-steps asks for: of each rank a file, OUT.trace/rank-R.json, once the last of the steps is
// done or the run ends before. Their clocks begin together, to within an exchange between the ranks. A trace that
// cannot be written is a warning. Every rank makes the same calls.
class StepTrace {
  public:
    StepTrace(const run_settings::RunConfig& config, comm::Comm& comm) : config_(config), comm_(comm) {}
    ~StepTrace();
    StepTrace(const StepTrace&) = delete;
    StepTrace& operator=(const StepTrace&) = delete;

    // Before a step and what follows it, outside of any span.
    void before_step(std::int64_t step);
    void after_step();

  private:
    void write();

    const run_settings::RunConfig& config_;
    comm::Comm& comm_;
    std::int64_t left_ = -1;  // steps to trace; -1: the first has not come
};

}  // namespace atl::train
