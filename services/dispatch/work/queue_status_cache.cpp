#include "services/dispatch/work/queue_status_cache.h"

#include <cstdlib>

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
    const std::int64_t age_ms = query.now_ms - known.asked_ms;
    // Another worker's question may be newer than this one's time; a much newer one is of before the clock was set
    // back.
    const bool is_fresh = known.asked_ms > query.seen_ms && std::abs(age_ms) < query.age_ms_max;
    if (!is_fresh || !known.answers.contains(query.batch_job_name)) {
        ATOLL_TRY(const auto jobs, query.list_jobs());
        ATOLL_TRY(const auto answers, query.ask(jobs));
        check(answers.size() == jobs.size(), "a batch system answers for each job");
        known.answers.clear();
        for (std::size_t i = 0; i < jobs.size(); ++i) known.answers[jobs[i].name] = answers[i];
        known.asked_ms = query.now_ms;
    }
    const auto found = known.answers.find(query.batch_job_name);
    if (found == known.answers.end()) return unavailable("nobody asks about " + query.batch_job_name);
    return QueueStatus{found->second, known.asked_ms};
}

}  // namespace atl::dispatch
