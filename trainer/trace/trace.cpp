#include "trainer/trace/trace.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "shared/base/check.h"

namespace atl::trace {
namespace {

using kernels::Stream;
using kernels::TimedEvent;

// Of a viewer, from above; the threads of the format.
enum class Row : std::uint8_t { kHost, kExchanges, kCompute, kCopiesIn, kCopiesOut };
constexpr std::array kRowNames = {"host", "exchanges", "device: computes", "device: copies in", "device: copies out"};
constexpr std::size_t kHostRows = 2;

Row row_of(Stream stream) {
    if (stream == Stream::kIn) return Row::kCopiesIn;
    return stream == Stream::kOut ? Row::kCopiesOut : Row::kCompute;
}

struct Event {
    Row row = Row::kHost;
    const char* kind = "";
    std::string name;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = -1;  // -1: it goes on
    std::size_t id = 0;        // of a transfer
};

// What a stream was asked for, whose times are not known yet.
struct Awaited {
    std::size_t event = 0;
    std::shared_ptr<const TimedEvent> begin, end;
};

struct Recording {
    std::vector<Event> events;
    std::vector<std::size_t> open;  // spans, the innermost last
    std::vector<std::size_t> under_way;
    std::int64_t start_ns = 0;
    std::int64_t too_many = 0;
    kernels::Backend* device = nullptr;  // null: its streams are not traced
    std::deque<Awaited> awaited;
    std::shared_ptr<const TimedEvent> known;  // when this happened
    double known_ns = 0;
    std::array<std::int64_t, kRowNames.size()> ends_ns{};  // of what is known, by row
};

Recording& recording() {
    static Recording instance;
    return instance;
}

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

// Where the clock of the device is beside the host's.
void begin_with_device(Recording& now) {
    now.device->synchronize();
    now.known = now.device->record_timed(Stream::kCompute);
    now.device->synchronize();
    now.known_ns = static_cast<double>(now_ns() - now.start_ns);
}

// `known` may be of long ago and its clock coarse, so a span could seem to begin before the one before it ended.
void set_times(Recording& now, const Awaited& span) {
    Event& event = now.events[span.event];
    const auto since_start_ns = [&](const TimedEvent& at) {
        return std::llround(now.known_ns + at.seconds_since(*now.known) * 1e9);
    };
    std::int64_t& end_ns = now.ends_ns[static_cast<std::size_t>(event.row)];
    event.begin_ns = std::max<std::int64_t>(since_start_ns(*span.begin), end_ns);
    event.end_ns = end_ns = std::max<std::int64_t>(since_start_ns(*span.end), event.begin_ns);
}

double microseconds(std::int64_t ns) {
    return static_cast<double>(ns) / 1e3;
}

// What all events have, in the format's words.
nlohmann::ordered_json event_json(const char* phase, const Event& event, std::int64_t ns, int rank) {
    const std::string label = event.name.empty() ? event.kind : std::string(event.kind) + " " + event.name;
    return {{"ph", phase},
            {"cat", event.kind},
            {"name", label},
            {"pid", rank},
            {"tid", static_cast<int>(event.row)},
            {"ts", microseconds(ns)}};
}

nlohmann::ordered_json name_json(const char* what, int rank, std::size_t row, const std::string& name) {
    return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}};
}

// Appends it to the list of events, an object a line.
void append(std::string& events, const nlohmann::ordered_json& event) {
    events += (events.empty() ? "" : ",\n") + event.dump();
}

void append(std::string& events, const Event& event, int rank) {
    if (event.end_ns < 0) return;  // a transfer that was not waited for
    if (event.row != Row::kExchanges) {
        nlohmann::ordered_json span = event_json("X", event, event.begin_ns, rank);
        span["dur"] = microseconds(event.end_ns - event.begin_ns);
        append(events, span);
        return;
    }
    for (const bool begins : {true, false}) {
        nlohmann::ordered_json half =
            event_json(begins ? "b" : "e", event, begins ? event.begin_ns : event.end_ns, rank);
        half["id2"] = {{"local", std::to_string(event.id)}};  // of this process alone: traces of ranks are put together
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

std::size_t begin_on_stream(Stream stream, const char* kind, std::string_view name) {
    Recording& now = recording();
    const std::size_t event = add({.row = row_of(stream), .kind = kind, .name = std::string(name)});
    if (event != kNone) now.awaited.push_back({event, now.device->record_timed(stream), nullptr});
    return event;
}

void end_on_stream(std::size_t span, Stream stream) {
    Recording& now = recording();
    const auto found = std::find_if(now.awaited.rbegin(), now.awaited.rend(),
                                    [&](const Awaited& awaited) { return awaited.event == span; });
    check(found != now.awaited.rend(), "a trace ends within a span");
    found->end = now.device->record_timed(stream);
}

void begin_transfer(const char* kind, std::string_view name, std::size_t id) {
    const std::size_t index = add({.row = Row::kExchanges, .kind = kind, .name = std::string(name), .id = id});
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

void start(kernels::Backend& backend) {
    check(!detail::on, "a trace began before");
    recording() = {};
    recording().start_ns = now_ns();
    detail::on = true;
    if (backend.host_reaches_device()) return;
    recording().device = &backend;
    begin_with_device(recording());
    detail::device_on = true;
}

void take_times() {
    Recording& now = recording();
    Awaited last;
    for (; !now.awaited.empty() && now.awaited.front().end->has_happened(); now.awaited.pop_front()) {
        last = now.awaited.front();
        set_times(now, last);
    }
    if (last.end == nullptr) return;
    now.known_ns += last.end->seconds_since(*now.known) * 1e9;
    now.known = last.end;
}

std::string finish(int rank, int ranks) {
    Recording& now = recording();
    check(now.open.empty(), "a trace ends within a span");
    if (now.device != nullptr) {
        now.device->synchronize();
        take_times();
    }
    detail::on = detail::device_on = false;
    std::string events;
    append(events, name_json("process_name", rank, 0, "rank " + std::to_string(rank) + " of " + std::to_string(ranks)));
    for (std::size_t row = 0; row < (now.device == nullptr ? kHostRows : kRowNames.size()); ++row)
        append(events, name_json("thread_name", rank, row, kRowNames[row]));
    for (const Event& event : now.events) append(events, event, rank);
    const nlohmann::json left_out = {{"events_left_out", now.too_many}};
    now = {};
    return R"({"displayTimeUnit":"ms","otherData":)" + left_out.dump() + ",\"traceEvents\":[\n" + events + "\n]}\n";
}

}  // namespace atl::trace
