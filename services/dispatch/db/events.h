#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/dispatch/domain/task.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

struct Topics {
    explicit Topics(const std::string& prefix)
        : jobs(prefix + "atoll.jobs"), rounds(prefix + "atoll.rounds"), aggregations(prefix + "atoll.aggregations") {}
    std::string jobs;          // what happens to jobs
    std::string rounds;        // closed rounds, which aggregation reads: they do not stand in line behind the others
    std::string aggregations;  // aggregation's answers
};

// The NOTIFY channel that tells of new events; the payload is the job's id.
inline constexpr const char* kEventChannel = "atoll_dispatch_events";

// Appends the events to the job's list and to the outbox. Takes the job's row lock: the numbers follow commit order.
Status record_events(pg::Transaction& transaction, const Topics& topics, const std::string& job,
                     const std::vector<DomainEvent>& events);
// To Kafka only: the job's events have these already.
Status send_again(pg::Transaction& transaction, const Topics& topics, const std::string& job,
                  const std::vector<DomainEvent>& events);

struct EventPage {
    json::Json items = json::Json::array();  // [{number, type, time, data}]
    std::int64_t last = 0;                   // number of the newest one given, or the one asked after
    bool job_is_finished = false;
};
// kNotFound: no such job.
Result<EventPage> read_events(pg::Connection& connection, const std::string& job, std::int64_t after,
                              std::int64_t limit);

}  // namespace atl::dispatch
