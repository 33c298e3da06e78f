#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// The time of one step: its scripts share it, so that a site that hangs in each of them takes no longer.
class StepTransport : public Transport {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kStepTimeMax{55};

    explicit StepTransport(std::shared_ptr<Transport> transport, std::chrono::milliseconds time = kStepTimeMax)
        : transport_(std::move(transport)), end_(Clock::now() + time) {}

    Result<CommandResult> run(const RemoteScript& script) override {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now());
        if (left <= left.zero()) return no_answer("the step's time is over; it is gone on with", Cause::kBusy);
        RemoteScript limited = script;
        limited.timeout = std::min(script.timeout, left);
        limited.until = end_;
        return transport_->run(limited);
    }

  private:
    const std::shared_ptr<Transport> transport_;
    const Clock::time_point end_;
};

}  // namespace atl::dispatch
