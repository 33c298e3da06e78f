#pragma once

#include <utility>

namespace atl {

// Runs a function at the end of its scope, also when an exception passes: gives back what was taken by hand. The
// function must not throw.
//
//   bytes_in_hand_ += bytes.size();
//   const OnExit subtract([&] { bytes_in_hand_ -= bytes.size(); });
template <class Function>
class OnExit {
  public:
    explicit OnExit(Function function) : function_(std::move(function)) {}
    ~OnExit() {
        if (is_armed_) function_();
    }
    OnExit(const OnExit&) = delete;
    OnExit& operator=(const OnExit&) = delete;
    // What was taken has another owner now.
    void disarm() { is_armed_ = false; }

  private:
    Function function_;
    bool is_armed_ = true;
};

}  // namespace atl
