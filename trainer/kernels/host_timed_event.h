#pragma once

#include <chrono>
#include <optional>

#include "trainer/kernels/backend.h"

namespace atl::kernels {

// Of a device whose streams run on the host: by the host's clock.
class HostTimedEvent final : public TimedEvent {
  public:
    void happen() { at_ = std::chrono::steady_clock::now(); }
    bool has_happened() const override { return at_.has_value(); }
    double seconds_since(const TimedEvent& other) const override {
        return std::chrono::duration<double>(at_.value() - static_cast<const HostTimedEvent&>(other).at_.value())
            .count();
    }

  private:
    std::optional<std::chrono::steady_clock::time_point> at_;
};

}  // namespace atl::kernels
