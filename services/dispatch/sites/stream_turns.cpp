#include "services/dispatch/sites/stream_turns.h"

#include <utility>

namespace atl::dispatch {

std::unique_ptr<StreamTurns::Turn> StreamTurns::take(const std::string& facility) {
    const std::lock_guard lock(mutex_);
    Lane& lane = lanes_[facility];
    if (lane.is_taken || streams_ == streams_max_) {
        ++refused_;
        return nullptr;
    }
    return std::make_unique<Turn>(*this, facility);
}

// Under the lock of take(). It counts from here on: its destructor gives it back.
StreamTurns::Turn::Turn(StreamTurns& turns, std::string facility)
    : turns_(turns),
      facility_(std::move(facility)),
      refused_before_(turns.refused_),
      in_hand_(turns.lanes_[facility_].in_hand) {
    turns_.lanes_[facility_].is_taken = true;
    ++turns_.streams_;
}

StreamTurns::Turn::~Turn() {
    const std::lock_guard lock(turns_.mutex_);
    turns_.lanes_[facility_].is_taken = false;
    --turns_.streams_;
}

bool StreamTurns::Turn::is_wanted() const {
    const std::lock_guard lock(turns_.mutex_);
    return turns_.refused_ != refused_before_;
}

}  // namespace atl::dispatch
