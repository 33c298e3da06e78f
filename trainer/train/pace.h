#pragma once

#include <cstdint>

namespace atl::train {

// What a step of this process takes, with what comes between steps: the mean since the first one, in which memory is
// touched for the first time, or of that one until there is a second. Times are seconds of one clock.
class Pace {
  public:
    // Before its first step, after so many of the run.
    Pace(double now_s, std::int64_t steps) : since_s_(now_s), since_steps_(steps) {}

    // Seconds, after that step; of later steps later.
    double step_s(double now_s, std::int64_t step) {
        if (step == since_steps_) return step_s_;
        const bool is_first = step_s_ == 0;
        step_s_ = (now_s - since_s_) / static_cast<double>(step - since_steps_);
        if (is_first) {
            since_s_ = now_s;
            since_steps_ = step;
        }
        return step_s_;
    }

  private:
    double since_s_;
    std::int64_t since_steps_;
    double step_s_ = 0;
};

}  // namespace atl::train
