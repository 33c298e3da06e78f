#pragma once

#include <cstdint>
#include <deque>

#include "shared/base/check.h"

namespace atl::train {

// How far a run is: by its clock, and in what its rank has waited for other ranks so far.
struct RunMoment {
    double at_s = 0;
    double waited_s = 0;
};

// What each step took, also where a device has the next one to do before the host has read this one: a step counts from
// where it began or, where that is later, from where the one before it was read. So no second is two steps', and those
// in which there is always a step to do are all some step's.
class StepTimes {
  public:
    void begin(const RunMoment& now) { begun_.push_back(now); }

    // Of the oldest step that was not read.
    RunMoment read(const RunMoment& now) {
        atl::check(!begun_.empty(), "a step is read that did not begin");
        const RunMoment from = begun_.front().at_s < read_.at_s ? read_ : begun_.front();
        begun_.pop_front();
        read_ = now;
        return {now.at_s - from.at_s, now.waited_s - from.waited_s};
    }

  private:
    std::deque<RunMoment> begun_;  // not read yet
    RunMoment read_;               // when the last of them was
};

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
