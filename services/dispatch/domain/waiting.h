#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shared/json/json.h"

namespace atl::dispatch {

// What stands in the way of a task, or of a whole facility.
struct Waiting {
    std::string reason;
    std::int64_t since_ms = 0;  // when something was in the way first
    std::int64_t next_ms = 0;   // when it is tried again
    bool operator==(const Waiting&) const = default;
};

// What stands in the way since then (0: since now) is tried again after as long a time as it has been there, within
// these bounds: the pauses double.
Waiting wait_longer(std::int64_t since_ms, std::string reason, std::int64_t now_ms, std::int64_t pause_ms_min,
                    std::int64_t pause_ms_max);
// Whether two reasons are of one trouble: they begin with the same words, numbers apart, up to the first colon. What
// follows may be other words at each try, as a connection is refused or times out.
bool is_same_trouble(const std::string& reason, const std::string& other);
// Whether it is to be tried again now. No pause is longer than an hour: a later one was set before the clock was set
// back.
bool is_over(const Waiting& waiting, std::int64_t now_ms);

// "2026-03-01T12:00:00Z".
std::string utc_text(std::int64_t unix_ms);
// As the API shows it: {reason, since, next_try}, or null.
json::Json waiting_view(const std::optional<Waiting>& waiting);

}  // namespace atl::dispatch
