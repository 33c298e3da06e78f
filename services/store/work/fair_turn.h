#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "shared/base/result.h"

namespace atl::store {

// Work that is done one piece at a time, in turn by caller: of those who wait, each gets one turn before anybody gets a
// second, however often somebody asks. Thread-safe.
class FairTurn {
  public:
    // Whoever waits holds a thread of the server: most of these stay free for everything else.
    struct Limits {
        std::size_t of_caller_max = 2;  // that wait for one caller
        std::size_t waiting_max = 6;    // for all callers together
        std::chrono::milliseconds patience{30'000};
    };

    // Holds the turn; gives it to the next when it goes.
    class Hold {
      public:
        explicit Hold(FairTurn& turn) : turn_(&turn) {}
        Hold(Hold&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
        Hold& operator=(Hold&&) = delete;
        ~Hold() {
            if (turn_ != nullptr) turn_->pass_on();
        }

      private:
        FairTurn* turn_;
    };

    FairTurn() : FairTurn(Limits()) {}
    explicit FairTurn(Limits limits) : limits_(limits) {}

    // Waits for the turn. kResourceExhausted: that many of this caller's wait already. kUnavailable: too many callers
    // wait, or the turn did not come in time.
    Result<Hold> take(const std::string& caller);
    std::size_t waiting() const;

  private:
    struct Ticket {
        bool has_turn = false;
    };
    void pass_on();
    void withdraw(const std::string& caller, const Ticket& ticket);

    const Limits limits_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool is_taken_ = false;
    std::size_t waiting_count_ = 0;
    std::deque<std::string> callers_;                     // that wait, each once, the next one first
    std::map<std::string, std::deque<Ticket*>> tickets_;  // of each of these, the oldest first
};

}  // namespace atl::store
