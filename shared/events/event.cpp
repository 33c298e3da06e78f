#include <array>
#include <ctime>

#include "shared/base/id.h"
#include "shared/events/events.h"
#include "shared/events/outbox.h"

namespace atl::events {
namespace {

// "2026-03-01T12:00:00.123Z"
std::string now_rfc3339() {
    const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 64> text;
    const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    const std::string milliseconds = std::to_string(1000 + now.time_since_epoch().count() % 1000);
    return std::string(text.data(), size) + "." + milliseconds.substr(1) + "Z";
}

}  // namespace

void complete(Event& event) {
    if (event.id.empty()) event.id = new_id();
    if (event.time.empty()) event.time = now_rfc3339();
}

json::Json to_json(const Event& event) {
    json::Json value = {{"specversion", "1.0"},   {"id", event.id},     {"type", event.type},
                        {"source", event.source}, {"time", event.time}, {"datacontenttype", "application/json"},
                        {"data", event.data}};
    if (!event.subject.empty()) value["subject"] = event.subject;
    return value;
}

Result<Event> from_json(const json::Json& value) {
    json::ObjectReader reader(value);
    reader.one_of("specversion", {"1.0"}, "");
    Event event;
    event.id = reader.required_string("id");
    event.type = reader.required_string("type");
    event.source = reader.required_string("source");
    event.subject = reader.string_or("subject", "");
    event.time = reader.string_or("time", "");
    event.data = reader.any_or_null("data");
    reader.allow_unknown();  // extension attributes
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return event;
}

}  // namespace atl::events
