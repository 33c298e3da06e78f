#include "services/dispatch/domain/waiting.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <utility>

namespace atl::dispatch {

using json::Json;

namespace {

constexpr std::int64_t kHour_ms = 3'600'000;

std::string begin_of(const std::string& reason) {
    std::string words = reason.substr(0, reason.find(':'));
    std::erase_if(words, [](unsigned char c) { return std::isdigit(c) != 0; });
    return words;
}

}  // namespace

Waiting wait_longer(std::int64_t since_ms, std::string reason, std::int64_t now_ms, std::int64_t pause_ms_min,
                    std::int64_t pause_ms_max) {
    if (since_ms == 0 || since_ms > now_ms) since_ms = now_ms;
    return {std::move(reason), since_ms, now_ms + std::clamp(now_ms - since_ms, pause_ms_min, pause_ms_max)};
}

bool is_same_trouble(const std::string& reason, const std::string& other) {
    return begin_of(reason) == begin_of(other);
}

bool is_over(const Waiting& waiting, std::int64_t now_ms) {
    return waiting.next_ms <= now_ms || waiting.next_ms > now_ms + 2 * kHour_ms;
}

std::string utc_text(std::int64_t unix_ms) {
    const std::time_t seconds = unix_ms / 1000;
    std::tm fields{};
    ::gmtime_r(&seconds, &fields);
    char text[40];
    return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &fields)};
}

Json waiting_view(const std::optional<Waiting>& waiting) {
    if (!waiting) return {};
    return {
        {"reason", waiting->reason}, {"since", utc_text(waiting->since_ms)}, {"next_try", utc_text(waiting->next_ms)}};
}

}  // namespace atl::dispatch
