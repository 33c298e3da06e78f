#include "services/dispatch/work/queue_watch.h"

#include <algorithm>

#include "shared/base/backoff.h"
#include "shared/base/contained.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::seconds kPause{1};

}  // namespace

QueueWatch::QueueWatch(pg::Pool& pool, FacilityConnections& connections, std::int64_t threads,
                       std::chrono::milliseconds interval)
    : pool_(pool), connections_(connections), interval_(interval) {
    const auto watch = [this](const std::stop_token& stop) {
        while (wait_unless_stopped(stop, std::min<std::chrono::milliseconds>(kPause, interval_))) {
            auto asked = Result<bool>(true);
            while (asked.ok() && *asked && !stop.stop_requested()) asked = contained([this] { return ask_one(); });
            if (!asked.ok()) spdlog::warn("whether batch systems answer: {}", describe(asked.error()));
        }
    };
    for (std::int64_t i = 0; i < threads; ++i) threads_.emplace_back(watch);
}

Result<bool> QueueWatch::ask_one() {
    if (connections_.is_stopped()) return false;
    std::optional<QueueToAsk> next;
    {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(next, take_queue_to_ask(*connection, interval_));
    }
    if (!next) return false;
    const Status answered = connections_.ping_batch(next->facility, next->now_ms);
    if (!connections_.is_stopped()) ATOLL_RETURN_IF_ERROR(record(*next, answered));
    return true;
}

Status QueueWatch::record(const QueueToAsk& asked, const Status& answered) {
    const Facility& facility = asked.facility;
    ATOLL_TRY(auto connection, pool_.acquire());
    if (answered.ok()) return record_batch_answer(*connection, facility.name, asked.now_ms);
    const Unreachable silence = unreachable(answered.error());
    if (silence.is_of_batch_system) return record_batch_silence(*connection, facility.name, silence.why);
    if (!silence.is_of_facility) return {};
    const PollPolicy& poll_policy = connections_.poll_policy(facility);
    const bool is_timed = silence.retry_ms > 0;
    return record_answer(*connection, facility.name, silence.why, is_timed ? silence.retry_ms : poll_policy.retry_ms,
                         is_timed ? silence.retry_ms : poll_policy.retry_ms_max);
}

}  // namespace atl::dispatch
