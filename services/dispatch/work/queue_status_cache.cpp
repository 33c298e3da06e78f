#include "services/dispatch/work/queue_status_cache.h"

namespace atl::dispatch {

QueueStatusCache::Facility& QueueStatusCache::facility(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& place = facilities_[name];
    if (place == nullptr) place = std::make_unique<Facility>();
    return *place;
}

Result<QueueStatus> QueueStatusCache::find(const Query& query) {
    Facility& known = facility(query.facility);
    const std::lock_guard lock(known.mutex);
    const bool is_fresh = known.asked_ms > query.seen_ms && query.now_ms - known.asked_ms < query.age_ms_max;
    if (!is_fresh || !known.states.contains(query.operation)) {
        ATOLL_TRY(const auto operations, query.operations());
        ATOLL_TRY(const auto states, query.ask(operations));
        check(states.size() == operations.size(), "a batch system answers for each operation");
        known.states.clear();
        for (std::size_t i = 0; i < operations.size(); ++i) known.states[operations[i].name] = states[i];
        known.asked_ms = query.now_ms;
    }
    const auto found = known.states.find(query.operation);
    if (found == known.states.end()) return unavailable("nobody asks about " + query.operation);
    return QueueStatus{found->second, known.asked_ms};
}

}  // namespace atl::dispatch
