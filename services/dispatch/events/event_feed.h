#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "services/dispatch/db/events.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// Answers questions for a job's events, at once when there are some (or the job is finished), else when there are or
// the time is over. One thread and one connection serve all who wait. Postgres' NOTIFY names the job: whoever waits for
// another one costs nothing meanwhile, and all who ask the same are answered from one look.
class EventFeed {
  public:
    static constexpr std::size_t kWaitingMax = 2000;
    static constexpr std::size_t kOfCallerMax = 64;

    struct Query {
        std::string job;
        std::string caller = {};  // whose place it takes
        std::int64_t after = 0;
        std::int64_t limit = 100;
        std::chrono::steady_clock::time_point deadline;
        std::function<void(Result<EventPage>)> answer;  // called once, from the feed's thread or by ask()
        bool is_new = true;                             // the feed's own marks: nobody has looked for it yet,
        bool is_told = false;                           // something has happened to its job
    };

    EventFeed(std::string conninfo, std::string schema, std::size_t waiting_max = kWaitingMax);
    ~EventFeed();

    // While `waiting_max` questions wait, or kOfCallerMax of the same caller, another is answered with
    // kResourceExhausted at once.
    void ask(Query query);
    // From now on every query is answered with what there is.
    void stop_waiting();

  private:
    using Jobs = std::set<std::string>;

    void run(const std::stop_token& stop);
    Status serve(const std::stop_token& stop);
    // False: nobody has asked for a while, or the feed is to stop.
    bool wait_for_questions(const std::stop_token& stop);
    // The questions to look at now: those that are new, whose time is over or whose job is among `told` (null: each may
    // be). The caller owns them.
    std::vector<Query> extract_due(const Jobs* told);
    Status answer_due(pg::Connection& connection, const Jobs* told);
    // Answers it, and its place is free.
    void give(const Query& query, Result<EventPage> page);
    void put_back(std::vector<Query> questions);
    void fail_late(const Error& error);

    std::string conninfo_;
    std::string schema_;
    const std::size_t waiting_max_;
    std::mutex mutex_;
    std::condition_variable_any wake_;
    std::vector<Query> questions_;
    std::map<std::string, std::size_t> waiting_;  // of each caller, also those in the thread's own hands
    std::size_t waiting_count_ = 0;               // of all
    bool stopping_ = false;
    std::jthread thread_;
};

}  // namespace atl::dispatch
