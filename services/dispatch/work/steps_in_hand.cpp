#include "services/dispatch/work/steps_in_hand.h"

#include <algorithm>

namespace atl::dispatch {

std::int64_t StepsInHand::count_slow(Clock::time_point now) const {
    return std::count_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.is_slow(now); });
}

std::unique_ptr<StepsInHand::Place> StepsInHand::take(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (static_cast<std::int64_t>(steps_.size()) - count_slow(now) >= workers_) return nullptr;
    return std::make_unique<Place>(*this, steps_.insert(steps_.end(), Step{now, {}}));
}

std::vector<std::string> StepsInHand::slow_facilities(Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> facilities;
    for (const Step& step : steps_)
        if (step.is_slow(now) && !step.facility.empty()) facilities.push_back(step.facility);
    return facilities;
}

bool StepsInHand::has_room_for_silent(Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    return count_slow(now) < slow_max_;
}

StepsInHand::Place::~Place() {
    const std::lock_guard lock(steps_.mutex_);
    steps_.steps_.erase(at_);
}

void StepsInHand::Place::is_for(const std::string& facility, bool is_silent) {
    const std::lock_guard lock(steps_.mutex_);
    at_->facility = facility;
    at_->is_silent = is_silent;
}

std::size_t StepsInHand::count() const {
    const std::lock_guard lock(mutex_);
    return steps_.size();
}

}  // namespace atl::dispatch
