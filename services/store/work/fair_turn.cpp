#include "services/store/work/fair_turn.h"

#include <algorithm>

namespace atl::store {

Result<FairTurn::Hold> FairTurn::take(const std::string& caller) {
    std::unique_lock lock(mutex_);
    if (!is_taken_) {
        is_taken_ = true;
        return Hold(*this);
    }
    const auto waiting = tickets_.find(caller);
    if (waiting != tickets_.end() && waiting->second.size() >= limits_.of_caller_max)
        return Error{ErrorCode::kResourceExhausted,
                     std::to_string(limits_.of_caller_max) +
                         " large versions of yours wait already, and such are looked at one at a time; try again",
                     {}};
    const Error busy = unavailable("other large versions are being looked at, one at a time; try again");
    if (waiting_count_ >= limits_.waiting_max) return busy;
    Ticket ticket;
    if (waiting == tickets_.end()) callers_.push_back(caller);
    tickets_[caller].push_back(&ticket);
    ++waiting_count_;
    if (changed_.wait_for(lock, limits_.patience, [&] { return ticket.has_turn; })) return Hold(*this);
    withdraw(caller, ticket);
    return busy;
}

std::size_t FairTurn::waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_count_;
}

void FairTurn::pass_on() {
    const std::lock_guard lock(mutex_);
    if (callers_.empty()) {
        is_taken_ = false;
        return;
    }
    std::string caller = std::move(callers_.front());
    callers_.pop_front();
    const auto waiting = tickets_.find(caller);
    waiting->second.front()->has_turn = true;
    waiting->second.pop_front();
    --waiting_count_;
    if (waiting->second.empty())
        tickets_.erase(waiting);
    else
        callers_.push_back(std::move(caller));
    changed_.notify_all();
}

void FairTurn::withdraw(const std::string& caller, const Ticket& ticket) {
    const auto waiting = tickets_.find(caller);
    std::erase(waiting->second, &ticket);
    --waiting_count_;
    if (!waiting->second.empty()) return;
    tickets_.erase(waiting);
    std::erase(callers_, caller);
}

}  // namespace atl::store
