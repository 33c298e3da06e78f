#include "trainer/trace/trace.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "shared/base/check.h"

namespace atl::trace {
namespace {

struct Event {
    const char* kind = "";
    std::string name;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = -1;  // -1: it goes on
    bool is_transfer = false;
    std::size_t id = 0;  // of a transfer
};

struct Recording {
    std::vector<Event> events;
    std::vector<std::size_t> open;  // spans, the innermost last
    std::vector<std::size_t> under_way;
    std::int64_t start_ns = 0;
    std::int64_t too_many = 0;
};

Recording& recording() {
    static Recording instance;
    return instance;
}

// An event beyond kEventsMax.
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::size_t add(Event event) {
    Recording& now = recording();
    if (now.events.size() == kEventsMax) {
        ++now.too_many;
        return kNone;
    }
    event.begin_ns = now_ns() - now.start_ns;
    now.events.push_back(std::move(event));
    return now.events.size() - 1;
}

double microseconds(std::int64_t ns) {
    return static_cast<double>(ns) / 1e3;
}

// What all events have, in the format's words.
nlohmann::ordered_json event_json(const char* phase, const Event& event, std::int64_t ns, int rank) {
    const std::string label = event.name.empty() ? event.kind : std::string(event.kind) + " " + event.name;
    return {{"ph", phase}, {"cat", event.kind}, {"name", label}, {"pid", rank}, {"tid", 0}, {"ts", microseconds(ns)}};
}

nlohmann::ordered_json name_json(const char* what, int rank, const std::string& name) {
    return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", 0}, {"args", {{"name", name}}}};
}

// Appends it to the list of events, an object a line.
void append(std::string& events, const nlohmann::ordered_json& event) {
    events += (events.empty() ? "" : ",\n") + event.dump();
}

void append(std::string& events, const Event& event, int rank) {
    if (event.end_ns < 0) return;  // a transfer that was not waited for
    if (!event.is_transfer) {
        nlohmann::ordered_json span = event_json("X", event, event.begin_ns, rank);
        span["dur"] = microseconds(event.end_ns - event.begin_ns);
        append(events, span);
        return;
    }
    for (const bool begins : {true, false}) {
        nlohmann::ordered_json half =
            event_json(begins ? "b" : "e", event, begins ? event.begin_ns : event.end_ns, rank);
        half["id"] = event.id;
        append(events, half);
    }
}

}  // namespace

namespace detail {

void begin(const char* kind, std::string_view name) {
    recording().open.push_back(add({.kind = kind, .name = std::string(name)}));
}

void end() {
    Recording& now = recording();
    check(!now.open.empty(), "a span ends that began before the trace");
    if (now.open.back() != kNone) now.events[now.open.back()].end_ns = now_ns() - now.start_ns;
    now.open.pop_back();
}

void begin_transfer(const char* kind, std::string_view name, std::size_t id) {
    const std::size_t index = add({.kind = kind, .name = std::string(name), .is_transfer = true, .id = id});
    if (index != kNone) recording().under_way.push_back(index);
}

void end_transfer(const char* kind, std::size_t id) {
    Recording& now = recording();
    const auto found = std::ranges::find_if(now.under_way, [&](std::size_t index) {
        return now.events[index].id == id && std::string_view(now.events[index].kind) == kind;
    });
    if (found == now.under_way.end()) return;  // it began before the trace
    now.events[*found].end_ns = now_ns() - now.start_ns;
    now.under_way.erase(found);
}

}  // namespace detail

void start() {
    check(!detail::on, "a trace began before");
    recording() = {};
    recording().start_ns = now_ns();
    detail::on = true;
}

std::string finish(int rank, int ranks) {
    Recording& now = recording();
    check(now.open.empty(), "a trace ends within a span");
    detail::on = false;
    std::string events;
    append(events, name_json("process_name", rank, "rank " + std::to_string(rank) + " of " + std::to_string(ranks)));
    append(events, name_json("thread_name", rank, "computes and waits"));
    for (const Event& event : now.events) append(events, event, rank);
    const nlohmann::json left_out = {{"events_left_out", now.too_many}};
    now = {};
    return R"({"displayTimeUnit":"ms","otherData":)" + left_out.dump() + ",\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace atl::trace
