#include "services/dispatch/events/event_feed.h"

#include <iterator>

#include "shared/base/contained.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

// While somebody waits, new questions are looked for that often; a notification is noticed at once.
constexpr milliseconds kSlice{20};
constexpr milliseconds kReconnectPause{500};
// A notification can be lost with its connection only, yet a look now and then costs nothing.
constexpr int kSlicesBetweenLooks = 100;

void give(const EventFeed::Query& query, Result<EventPage> page) {
    const Status given = contained([&]() -> Status {
        query.answer(std::move(page));
        return {};
    });
    if (!given.ok()) spdlog::error("events of job {} could not be given: {}", query.job, describe(given.error()));
}

}  // namespace

EventFeed::EventFeed(std::string conninfo, std::string schema)
    : conninfo_(std::move(conninfo)), schema_(std::move(schema)) {
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
    {
        const std::lock_guard lock(mutex_);
        questions_.push_back(std::move(query));
    }
    wake_.notify_all();
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
    bool look_at_all = true;
    for (int slice = 1; !stop.stop_requested(); ++slice) {
        ATOLL_RETURN_IF_ERROR(answer_ready(connection, look_at_all || slice % kSlicesBetweenLooks == 0));
        if (std::unique_lock lock(mutex_); questions_.empty())
            wake_.wait(lock, stop, [this] { return !questions_.empty(); });
        ATOLL_TRY(look_at_all, connection.wait_for_notification(kSlice));
    }
    return {};
}

std::vector<EventFeed::Query> EventFeed::extract_due(bool all) {
    const auto now = std::chrono::steady_clock::now();
    std::vector<Query> due;
    const std::lock_guard lock(mutex_);
    for (auto query = questions_.begin(); query != questions_.end();) {
        if (stopping_) query->deadline = now;
        if (all || query->is_new || query->deadline <= now) {
            due.push_back(std::move(*query));
            query = questions_.erase(query);
        } else {
            ++query;
        }
    }
    return due;
}

Status EventFeed::answer_ready(pg::Connection& connection, bool all) {
    std::vector<Query> due = extract_due(all);
    for (std::size_t i = 0; i < due.size(); ++i) {
        Query& query = due[i];
        auto page = contained([&] { return read_events(connection, query.job, query.after, query.limit); });
        if (!page.ok() && is_transient(page.error().code)) {
            put_back({std::make_move_iterator(due.begin() + static_cast<std::ptrdiff_t>(i)),
                      std::make_move_iterator(due.end())});
            return page.error();
        }
        const bool must_answer = !page.ok() || !page->items.empty() || page->job_is_finished ||
                                 query.deadline <= std::chrono::steady_clock::now();
        if (must_answer) {
            give(query, std::move(page));
            continue;
        }
        query.is_new = false;
        std::vector<Query> still_waiting;
        still_waiting.push_back(std::move(query));
        put_back(std::move(still_waiting));
    }
    return {};
}

void EventFeed::put_back(std::vector<Query> questions) {
    const std::lock_guard lock(mutex_);
    std::move(questions.begin(), questions.end(), std::back_inserter(questions_));
}

void EventFeed::fail_late(const Error& error) {
    for (auto& query : extract_due(false)) give(query, error);
}

}  // namespace atl::dispatch
