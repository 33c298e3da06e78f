#pragma once

#include <cstdint>

#include "shared/run_settings/run_settings.h"
#include "trainer/comm/comm.h"
#include "trainer/kernels/backend.h"

namespace atl::train {

// The traces that --trace-steps asks for: of each rank a file, OUT.trace/rank-R.json, once the last of the steps is
// done or the run ends before. Their clocks begin together, to within an exchange between the ranks. A trace that
// cannot be written is a warning. Every rank makes the same calls.
class StepTrace {
  public:
    // All must outlive it.
    StepTrace(const run_settings::RunConfig& config, comm::Comm& comm, kernels::Backend& backend)
        : config_(config), comm_(comm), backend_(backend) {}
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
    kernels::Backend& backend_;
    std::int64_t left_ = -1;  // steps to trace; -1: the first has not come
};

}  // namespace atl::train
