#include "services/dispatch/events/event_feed.h"

#include <iterator>
#include <map>
#include <tuple>

#include "shared/base/contained.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

// While somebody waits, new questions are looked for that often; a notification is noticed at once.
constexpr milliseconds kSlice{20};
constexpr milliseconds kReconnectPause{500};
// After so long without a question the connection goes: a listener that reads nothing makes the server keep every
// notification for it.
constexpr std::chrono::seconds kIdleMax{5};

void answer(const EventFeed::Query& query, Result<EventPage> page) {
    const Status given = contained([&]() -> Status {
        query.answer(std::move(page));
        return {};
    });
    if (!given.ok()) spdlog::error("events of job {} could not be given: {}", query.job, describe(given.error()));
}

}  // namespace

EventFeed::EventFeed(std::string conninfo, std::string schema, std::size_t waiting_max)
    : conninfo_(std::move(conninfo)), schema_(std::move(schema)), waiting_max_(waiting_max) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

EventFeed::~EventFeed() {
    stop_waiting();
    thread_.request_stop();
    wake_.notify_all();
    thread_.join();
    for (auto& query : questions_) give(query, unavailable("the service is stopping"));
}

void EventFeed::ask(Query query) {
    std::string refusal;
    {
        const std::lock_guard lock(mutex_);
        const auto of_caller = waiting_.find(query.caller);
        if (waiting_count_ >= waiting_max_) {
            refusal = "as many wait for events as can (" + std::to_string(waiting_max_) + "); ask again in a while";
        } else if (of_caller != waiting_.end() && of_caller->second >= kOfCallerMax) {
            refusal = query.caller + " waits for events " + std::to_string(kOfCallerMax) +
                      " times already, as often as one may; ask again when one of these has its answer";
        } else {
            ++waiting_[query.caller];
            ++waiting_count_;
            questions_.push_back(std::move(query));
            wake_.notify_all();
            return;
        }
    }
    answer(query, Error{ErrorCode::kResourceExhausted, refusal, {}});
}

void EventFeed::give(const Query& query, Result<EventPage> page) {
    {
        const std::lock_guard lock(mutex_);
        --waiting_count_;
        const auto of_caller = waiting_.find(query.caller);
        if (--of_caller->second == 0) waiting_.erase(of_caller);
    }
    answer(query, std::move(page));
}

void EventFeed::stop_waiting() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& query : questions_) query.deadline = {};
}

void EventFeed::run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, stop, [this] { return !questions_.empty(); });
        }
        if (stop.stop_requested()) return;
        const Status status = contained([&] { return serve(stop); });
        if (status.ok()) continue;
        spdlog::warn("the event feed begins anew: {}", describe(status.error()));
        fail_late(status.error());
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, stop, kReconnectPause, [] { return false; });
    }
}

Status EventFeed::serve(const std::stop_token& stop) {
    ATOLL_TRY(pg::Connection connection, pg::connect(conninfo_, schema_));
    ATOLL_RETURN_IF_ERROR(connection.script(std::string("LISTEN ") + kEventChannel));
    // What was told while nobody listened is not known.
    ATOLL_RETURN_IF_ERROR(answer_due(connection, nullptr));
    while (wait_for_questions(stop)) {
        ATOLL_TRY(const auto told, connection.wait_for_notifications(kSlice));
        const Jobs jobs(told.begin(), told.end());
        ATOLL_RETURN_IF_ERROR(answer_due(connection, &jobs));
    }
    return {};
}

bool EventFeed::wait_for_questions(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, stop, kIdleMax, [this] { return !questions_.empty(); }) && !stop.stop_requested();
}

std::vector<EventFeed::Query> EventFeed::extract_due(const Jobs* told) {
    const auto now = std::chrono::steady_clock::now();
    std::vector<Query> due;
    const std::lock_guard lock(mutex_);
    for (auto query = questions_.begin(); query != questions_.end();) {
        if (stopping_) query->deadline = now;
        query->is_told = told == nullptr || told->contains(query->job);
        if (query->is_told || query->is_new || query->deadline <= now) {
            due.push_back(std::move(*query));
            query = questions_.erase(query);
        } else {
            ++query;
        }
    }
    return due;
}

Status EventFeed::answer_due(pg::Connection& connection, const Jobs* told) {
    std::vector<Query> due = extract_due(told);
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>, Result<EventPage>> pages;
    const auto look = [&](const Query& query) -> Result<EventPage> {
        if (!query.is_new && !query.is_told) {  // its time is over, and nothing has happened
            EventPage none;
            none.last = query.after;
            return none;
        }
        const std::tuple key(query.job, query.after, query.limit);
        const auto known = pages.find(key);
        if (known != pages.end()) return known->second;
        auto page = contained([&] { return read_events(connection, query.job, query.after, query.limit); });
        return pages.emplace(key, std::move(page)).first->second;
    };
    std::vector<Query> still_waiting;
    for (std::size_t i = 0; i < due.size(); ++i) {
        Query& query = due[i];
        Result<EventPage> page = look(query);
        if (!page.ok() && is_transient(page.error().code)) {
            put_back({std::make_move_iterator(due.begin() + static_cast<std::ptrdiff_t>(i)),
                      std::make_move_iterator(due.end())});
            put_back(std::move(still_waiting));
            return page.error();
        }
        const bool must_answer = !page.ok() || !page->items.empty() || page->job_is_finished ||
                                 query.deadline <= std::chrono::steady_clock::now();
        query.is_new = false;
        if (must_answer)
            give(query, std::move(page));
        else
            still_waiting.push_back(std::move(query));
    }
    put_back(std::move(still_waiting));
    return {};
}

void EventFeed::put_back(std::vector<Query> questions) {
    const std::lock_guard lock(mutex_);
    std::move(questions.begin(), questions.end(), std::back_inserter(questions_));
}

void EventFeed::fail_late(const Error& error) {
    const Jobs none;
    for (auto& query : extract_due(&none)) give(query, error);
}

}  // namespace atl::dispatch
