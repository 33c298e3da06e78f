#include "services/dispatch/events/event_feed.h"

#include <map>
#include <tuple>

#include "shared/base/contained.h"
#include "shared/base/on_exit.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;

// While somebody waits, new questions are looked for that often; a notification is noticed at once.
constexpr milliseconds kSlice{20};
constexpr milliseconds kReconnectPause{500};
constexpr std::size_t kPagesKept = 4;  // for others who ask the same: each is some megabytes
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
    : conninfo_(std::move(conninfo)), schema_(std::move(schema)), places_(waiting_max, kOfCallerMax) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

EventFeed::~EventFeed() {
    stop_waiting();
    thread_.request_stop();
    wake_.notify_all();
    thread_.join();
    while (!questions_.empty()) give_first(questions_, unavailable("the service is stopping"));
}

void EventFeed::ask(Query query) {
    auto place = places_.take(query.caller);
    if (!place.ok()) return answer(query, place.error());
    query.place.emplace(std::move(place).value());
    std::list<Query> question;
    question.push_back(std::move(query));
    put_back(question);
    wake_.notify_all();
}

void EventFeed::give_first(std::list<Query>& questions, Result<EventPage> page) {
    std::list<Query> question;
    question.splice(question.end(), questions, questions.begin());
    question.front().place.reset();
    answer(question.front(), std::move(page));
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
        if (const Status told = contained([&] { return fail_late(status.error()); }); !told.ok())
            spdlog::warn("those who wait for events wait on: {}", describe(told.error()));
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

std::list<EventFeed::Query> EventFeed::extract_due(const Jobs* told) {
    const auto now = std::chrono::steady_clock::now();
    std::list<Query> due;
    const std::lock_guard lock(mutex_);
    for (auto query = questions_.begin(); query != questions_.end();) {
        const auto next = std::next(query);
        if (stopping_) query->deadline = now;
        query->is_told = told == nullptr || told->contains(query->job);
        if (query->is_told || query->is_new || query->deadline <= now) due.splice(due.end(), questions_, query);
        query = next;
    }
    return due;
}

Status EventFeed::answer_due(pg::Connection& connection, const Jobs* told) {
    std::list<Query> due = extract_due(told), waiting;
    const OnExit keep([&] {  // whatever happens, who has no answer yet waits on
        put_back(due);
        put_back(waiting);
    });
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
        if (pages.size() >= kPagesKept) pages.clear();
        auto page = contained([&] { return read_events(connection, query.job, query.after, query.limit); });
        return pages.emplace(key, std::move(page)).first->second;
    };
    while (!due.empty()) {
        Query& query = due.front();
        Result<EventPage> page = look(query);
        if (!page.ok() && is_transient(page.error().code)) return page.error();
        const bool must_answer = !page.ok() || !page->items.empty() || page->job_is_finished ||
                                 query.deadline <= std::chrono::steady_clock::now();
        query.is_new = false;
        if (must_answer)
            give_first(due, std::move(page));
        else
            waiting.splice(waiting.end(), due, due.begin());
    }
    return {};
}

void EventFeed::put_back(std::list<Query>& questions) {
    const std::lock_guard lock(mutex_);
    questions_.splice(questions_.end(), questions);
}

Status EventFeed::fail_late(const Error& error) {
    const Jobs none;
    std::list<Query> due = extract_due(&none);
    const OnExit keep([&] { put_back(due); });
    while (!due.empty()) give_first(due, error);
    return {};
}

Result<WaitingPlaces::Place> WaitingPlaces::take(const std::string& caller) {
    const std::lock_guard lock(mutex_);
    const auto exhausted = [](std::string why) { return Error{ErrorCode::kResourceExhausted, std::move(why), {}}; };
    if (count_ >= count_max_)
        return exhausted("as many wait for events as can (" + std::to_string(count_max_) + "); ask again in a while");
    const auto taken = of_callers_.find(caller);
    if (taken != of_callers_.end() && taken->second >= of_caller_max_)
        return exhausted(caller + " waits for events " + std::to_string(of_caller_max_) +
                         " times already, as often as one may; ask again when one of these has its answer");
    std::string name = caller;  // what may fail comes before it is counted
    ++of_callers_[caller];
    ++count_;
    return Place(*this, std::move(name));
}

void WaitingPlaces::leave(const std::string& caller) {
    const std::lock_guard lock(mutex_);
    --count_;
    const auto taken = of_callers_.find(caller);
    if (--taken->second == 0) of_callers_.erase(taken);
}

}  // namespace atl::dispatch
