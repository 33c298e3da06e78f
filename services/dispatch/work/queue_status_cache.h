#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "services/dispatch/sites/batch/batch_system.h"

namespace atl::dispatch {

struct QueueStatus {
    BatchAnswer answer;
    std::int64_t asked_ms = 0;
};

// What each facility's batch system said last: one query serves all tasks of a facility. Thread-safe; while one
// worker asks about a facility the others wait for its answer.
class QueueStatusCache {
  public:
    struct Query {
        std::string facility;
        std::string batch_job_name;
        std::int64_t seen_ms = 0;     // when the newest answer that its task has seen was asked for
        std::int64_t age_ms_max = 0;  // of an answer that still counts
        std::int64_t now_ms = 0;
        std::function<Result<std::vector<BatchJobRef>>()> list_jobs;  // all that are worth asking about
        std::function<Result<std::vector<BatchAnswer>>(const std::vector<BatchJobRef>&)> ask;
    };
    // From an answer that the task has not seen, or by asking now. kUnavailable: no answer, or the jobs do not
    // hold this one.
    Result<QueueStatus> find(const Query& query);

  private:
    struct Facility {
        std::mutex mutex;
        std::int64_t asked_ms = 0;
        std::map<std::string, BatchAnswer> answers;  // of the last query, by name
    };
    Facility& facility(const std::string& name);

    std::mutex mutex_;
    std::map<std::string, std::unique_ptr<Facility>> facilities_;
};

}  // namespace atl::dispatch
