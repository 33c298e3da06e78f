#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "services/dispatch/db/events.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// The places of those who wait: so many of all, and of each caller. Thread-safe; it outlives them.
class WaitingPlaces {
  public:
    // Free again when it goes, however that comes.
    class Place {
      public:
        Place(WaitingPlaces& places, std::string caller) : places_(&places), caller_(std::move(caller)) {}
        Place(Place&& other) noexcept
            : places_(std::exchange(other.places_, nullptr)), caller_(std::move(other.caller_)) {}
        Place& operator=(Place&&) = delete;
        ~Place() {
            if (places_ != nullptr) places_->leave(caller_);
        }

      private:
        WaitingPlaces* places_;
        std::string caller_;
    };

    WaitingPlaces(std::size_t count_max, std::size_t of_caller_max)
        : count_max_(count_max), of_caller_max_(of_caller_max) {}
    // kResourceExhausted: all are taken, or all that one caller may have.
    Result<Place> take(const std::string& caller);

  private:
    void leave(const std::string& caller);

    const std::size_t count_max_;
    const std::size_t of_caller_max_;
    std::mutex mutex_;
    std::map<std::string, std::size_t> of_callers_;
    std::size_t count_ = 0;
};

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
        std::function<void(Result<EventPage>)> answer;   // called once, from the feed's thread or by ask()
        bool is_new = true;                              // the feed's own marks: nobody has looked for it yet,
        bool is_told = false;                            // something has happened to its job
        std::optional<WaitingPlaces::Place> place = {};  // which it has while it waits
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
    // be). The caller owns them. A list, so that no question is lost where memory runs out.
    std::list<Query> extract_due(const Jobs* told);
    Status answer_due(pg::Connection& connection, const Jobs* told);
    // Answers the first of them, whose place is free then.
    static void give_first(std::list<Query>& questions, Result<EventPage> page);
    void put_back(std::list<Query>& questions);
    Status fail_late(const Error& error);

    std::string conninfo_;
    std::string schema_;
    WaitingPlaces places_;
    std::mutex mutex_;
    std::condition_variable_any wake_;
    std::list<Query> questions_;
    bool stopping_ = false;
    std::jthread thread_;
};

}  // namespace atl::dispatch
