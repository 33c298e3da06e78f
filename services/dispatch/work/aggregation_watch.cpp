#include "services/dispatch/work/aggregation_watch.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "services/dispatch/events/aggregation_events.h"
#include "shared/base/backoff.h"
#include "shared/base/text.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::size_t kWaitReasonBytesMax = 500;

// As aggregation's event would say it.
events::Event event_of(const RoundInAggregation& round, const Json& answer) {
    const bool is_completed = answer.value("state", "") == "completed";
    events::Event event;
    event.type = is_completed ? "atoll.aggregation.completed.v1" : "atoll.aggregation.failed.v1";
    event.source = "/aggregation";
    event.data = {
        {"job", round.job}, {"round", round.number}, {"updates_refused", answer.value("refused", Json::array())}};
    event.data[is_completed ? "version" : "error"] = answer.value(is_completed ? "version" : "error", Json());
    return event;
}

}  // namespace

AggregationWatch::AggregationWatch(pg::Pool& pool, const Catalog& catalog, const Topics& topics,
                                   AggregationPatience patience)
    : pool_(pool), catalog_(catalog), topics_(topics), patience_(patience) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
        while (wait_unless_stopped(stop, patience_.look)) {
            const Status looked = contained([this] { return look(); });
            if (!looked.ok()) spdlog::warn("rounds that wait for their aggregation: {}", describe(looked.error()));
        }
    });
}

Status AggregationWatch::look() {
    std::vector<RoundInAggregation> rounds;
    {
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_TRY(rounds, rounds_in_aggregation(*connection));
    }
    std::erase_if(next_ask_, [&](const auto& asked) {
        return std::none_of(rounds.begin(), rounds.end(), [&](const RoundInAggregation& round) {
            return asked.first == std::pair(round.job, round.number);
        });
    });
    for (const RoundInAggregation& round : rounds) {
        const auto waiting = look_at(round);
        ATOLL_TRY(auto connection, pool_.acquire());
        ATOLL_RETURN_IF_ERROR(set_round_waiting(*connection, round, waiting));
    }
    return {};
}

std::optional<Waiting> AggregationWatch::look_at(const RoundInAggregation& round) {
    const auto now = std::chrono::steady_clock::now();
    const bool is_unsent = round.unsent_ms >= patience_.unsent.count();
    std::string reason =
        is_unsent ? "Kafka does not take the events of this job; without it a round takes a minute longer" : "";
    const bool is_asked = catalog_.has_aggregation() && round.told_ms >= patience_.unanswered.count();
    if (is_asked) {
        auto& next = next_ask_[{round.job, round.number}];
        if (now < next) return round.waiting;
        next = now + patience_.ask;
        const Status asked = contained([&] { return ask(round); });
        // Aggregation is at work, or has answered: that Kafka is away costs this round nothing more.
        if (asked.ok()) return {};
        reason = (is_unsent ? "Kafka does not take the events of this job, and aggregation cannot be asked: "
                            : "aggregation cannot be asked: ") +
                 describe(asked.error());
    }
    if (reason.empty()) return {};
    const std::int64_t since_ms =
        round.waiting ? round.waiting->since_ms : round.now_ms - std::max<std::int64_t>(round.unsent_ms, 0);
    const std::int64_t next_ms =
        is_asked ? round.now_ms + patience_.ask.count() : round.now_ms - round.told_ms + patience_.unanswered.count();
    return Waiting{shorten(reason, kWaitReasonBytesMax), since_ms, next_ms};
}

Status AggregationWatch::ask(const RoundInAggregation& round) {
    const auto answer = catalog_.aggregation(round.job, round.number);
    if (answer.ok()) return apply(round, *answer);
    if (answer.error().code == ErrorCode::kInvalidArgument && is_answer(answer.error()))
        return apply(round, {{"state", "failed"}, {"error", describe(answer.error())}});
    return answer.error();
}

Status AggregationWatch::apply(const RoundInAggregation& round, const Json& answer) {
    const std::string state = answer.value("state", "");
    if (state != "completed" && state != "failed") return {};
    spdlog::info("round {} of job {} is {}: aggregation says so, no event has", round.number, round.job, state);
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
    ATOLL_RETURN_IF_ERROR(apply_aggregation_event(transaction, catalog_, topics_, event_of(round, answer)));
    return transaction.commit();
}

}  // namespace atl::dispatch
