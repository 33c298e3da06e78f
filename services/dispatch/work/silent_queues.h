#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "shared/base/result.h"

namespace atl::dispatch {

// The facilities whose batch system gave no answer when it was last asked: none of them is asked again before a pause
// is over, as each question may take as long as its limit allows. Thread-safe.
class SilentQueues {
  public:
    static constexpr std::int64_t kPause_ms = 30000;

    // Whether the batch system of the facility is to be left alone now, and why.
    std::optional<Error> find(const std::string& facility, std::int64_t now_ms) const {
        const std::lock_guard lock(mutex_);
        const auto at = silent_.find(facility);
        if (at == silent_.end() || now_ms >= at->second.next_ms || now_ms + kPause_ms < at->second.next_ms)
            return std::nullopt;
        return at->second.why;
    }
    // One that is silent is asked alone, so that looks at what runs need not wait for it.
    bool is_silent(const std::string& facility) const {
        const std::lock_guard lock(mutex_);
        return silent_.contains(facility);
    }
    void note_answer(const std::string& facility) {
        const std::lock_guard lock(mutex_);
        silent_.erase(facility);
    }
    // What came of a question to it; an error that is not about the batch system says nothing of it.
    void note(const std::string& facility, const Status& answered, std::int64_t now_ms) {
        if (answered.ok()) return note_answer(facility);
        if (answered.error().cause != Cause::kBatchSystem) return;
        const std::lock_guard lock(mutex_);
        silent_.insert_or_assign(facility, Silence{answered.error(), now_ms + kPause_ms});
    }

  private:
    struct Silence {
        Error why;
        std::int64_t next_ms = 0;
    };
    mutable std::mutex mutex_;
    std::map<std::string, Silence> silent_;
};

}  // namespace atl::dispatch
