#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace atl::dispatch {

// The steps that this process does at a time. One takes one of `workers` places until it is slow: until it has waited
// for its site for two seconds, or from the start where the site gave no answer when it was last asked. So sites that
// hang leave the places to others. Thread-safe.
//
//   if (const auto place = steps.take(Clock::now())) { lease a task; place->is_for(task.facility, is_silent); do its
//   step; }
class StepsInHand {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kSlowAfter{2};

    // Of silent sites no more than `slow_max` are asked while as many steps are slow.
    StepsInHand(std::int64_t workers, std::int64_t slow_max) : workers_(workers), slow_max_(slow_max) {}

    class Place;
    // Nothing: all are taken.
    std::unique_ptr<Place> take(Clock::time_point now);
    // Where a step is slow: what else there is to do there may wait for its end.
    std::vector<std::string> slow_facilities(Clock::time_point now) const;
    bool has_room_for_silent(Clock::time_point now) const;
    std::size_t count() const;

  private:
    struct Step {
        Clock::time_point begun;
        std::string facility;
        bool is_silent = false;
        bool is_slow(Clock::time_point now) const { return is_silent || now - begun >= kSlowAfter; }
    };
    std::int64_t count_slow(Clock::time_point now) const;

    const std::int64_t workers_;
    const std::int64_t slow_max_;
    mutable std::mutex mutex_;
    std::list<Step> steps_;
};

class StepsInHand::Place {
  public:
    Place(StepsInHand& steps, std::list<Step>::iterator at) : steps_(steps), at_(at) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    void is_for(const std::string& facility, bool is_silent);

  private:
    StepsInHand& steps_;
    const std::list<Step>::iterator at_;
};

}  // namespace atl::dispatch
