#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "shared/base/result.h"
#include "shared/http/server/thread_pool.h"

namespace atl::dispatch {

// What people ask of sites: it waits for them on threads of its own, so that a site that never answers holds up nobody
// who asks for something else. One caller has a few questions under way at a time, and so has a facility. One caller
// has a few jobs examined at a time as well, which asks other services. Thread-safe.
//
//   ATOLL_TRY(const auto place, requests.take_place(request.principal->subject, facility.name));
class SiteRequests {
  public:
    static constexpr int kOfCallerMax = 4;
    static constexpr int kAtFacilityMax = 12;  // two callers do not keep its owner out

    SiteRequests() : threads_(kThreads, kWaitingMax) {}

    // Runs the work on one of the threads. False: too much waits for one, or stop() was called.
    bool run(std::function<void()> work) { return threads_.submit(std::move(work)); }
    // Waits for what runs; what waits for a thread is dropped.
    void stop() { threads_.stop(); }

    // Given back with its last copy.
    using Place = std::shared_ptr<void>;
    // kResourceExhausted that says whose places are taken.
    Result<Place> take_place_of(const std::string& caller);
    Result<Place> take_place_at(const std::string& facility);
    Result<Place> take_examination(const std::string& caller);
    // A caller's and a facility's.
    Result<Place> take_place(const std::string& caller, const std::string& facility);

  private:
    static constexpr int kThreads = 32;
    static constexpr std::size_t kWaitingMax = 256;
    // Nothing: there are `max` of that name.
    Place take(const std::string& name, int max);

    std::mutex mutex_;
    std::map<std::string, int> taken_;
    http::ThreadPool threads_;
};

}  // namespace atl::dispatch
