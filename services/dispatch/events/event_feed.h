#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "services/dispatch/db/events.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Answers questions for a job's events, at once when there are some (or the job is finished), else when there are or
// the time is over. One thread and one connection serve all who wait; Postgres' NOTIFY wakes them.
class EventFeed {
  public:
    struct Query {
        std::string job;
        std::int64_t after = 0;
        std::int64_t limit = 100;
        std::chrono::steady_clock::time_point deadline;
        std::function<void(Result<EventPage>)> answer;  // called once, from the feed's thread
        bool is_new = true;                             // the feed's own mark
    };

    EventFeed(std::string conninfo, std::string schema);
    ~EventFeed();

    void ask(Query query);
    // From now on every query is answered with what there is.
    void stop_waiting();

  private:
    void run(const std::stop_token& stop);
    Status serve(const std::stop_token& stop);
    // The questions to look at now: all, or those that are new or whose time is over. The caller owns them.
    std::vector<Query> extract_due(bool all);
    Status answer_ready(pg::Connection& connection, bool all);
    void put_back(std::vector<Query> questions);
    void fail_late(const Error& error);

    std::string conninfo_;
    std::string schema_;
    std::mutex mutex_;
    std::condition_variable_any wake_;
    std::vector<Query> questions_;
    bool stopping_ = false;
    std::jthread thread_;
};

}  // namespace atl::dispatch
