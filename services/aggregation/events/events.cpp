#include "services/aggregation/events/events.h"

#include <spdlog/spdlog.h>

#include "services/aggregation/db/repository.h"

namespace atl::aggregation {
namespace {

events::Event make_event(const char* type, const std::string& job, std::int64_t round) {
    events::Event event;
    event.type = type;
    event.source = "/aggregation";
    event.subject = "jobs/" + job + "/rounds/" + std::to_string(round);
    event.data = {{"job", job}, {"round", round}};
    return event;
}

// Dispatch asks a second time when no answer came: an answer that was given may have been lost as well.
Status answer_again(pg::Transaction& transaction, ClosedRound round, const std::string& topic_prefix) {
    ATOLL_TRY(const nlohmann::json known, find_aggregation(transaction, round.job, round.round));
    ATOLL_RETURN_IF_ERROR(leave_out(round, known.at("refused")));
    if (known.at("state") == "completed") return add_completed(transaction, topic_prefix, round, known.at("version"));
    if (known.at("state") == "failed")
        return add_failed(transaction, topic_prefix, round.job, round.round, known.at("error"), round.refused);
    return {};
}

}  // namespace

std::string rounds_topic(const std::string& topic_prefix) {
    return topic_prefix + "atoll.rounds";
}

std::string results_topic(const std::string& topic_prefix) {
    return topic_prefix + "atoll.aggregations";
}

Status apply_event(pg::Transaction& transaction, const events::Event& event, const std::string& topic_prefix) {
    if (event.type != "atoll.round.closed.v1") return {};
    auto round = parse_closed_round(event.data);
    if (!round.ok()) {
        // Dispatch waits for an answer; only where it cannot be addressed does the event become a dead letter.
        const bool addressed = event.data.is_object() && event.data.contains("job") && event.data["job"].is_string() &&
                               event.data.contains("round") && event.data["round"].is_number_integer();
        if (!addressed) return round.error();
        return add_failed(transaction, topic_prefix, event.data["job"].get<std::string>(),
                          event.data["round"].get<std::int64_t>(), describe(round.error()), {});
    }
    ATOLL_TRY(const bool fresh, insert_aggregation(transaction, *round));
    spdlog::info("round {} of job {}: {} updates{}", round->round, round->job, round->updates.size(),
                 fresh ? "" : ", known already");
    return fresh ? Status() : answer_again(transaction, std::move(*round), topic_prefix);
}

Status add_completed(pg::Transaction& transaction, const std::string& topic_prefix, const ClosedRound& round,
                     const std::string& version) {
    events::Event event = make_event("atoll.aggregation.completed.v1", round.job, round.round);
    event.data["version"] = version;
    event.data["model"] = round.model;
    event.data["updates_refused"] = to_json(round.refused);
    return events::add_to_outbox(transaction, results_topic(topic_prefix), round.job, std::move(event));
}

Status add_failed(pg::Transaction& transaction, const std::string& topic_prefix, const std::string& job,
                  std::int64_t round, const std::string& error, const std::vector<RefusedUpdate>& refused) {
    events::Event event = make_event("atoll.aggregation.failed.v1", job, round);
    event.data["error"] = error;
    event.data["updates_refused"] = to_json(refused);
    return events::add_to_outbox(transaction, results_topic(topic_prefix), job, std::move(event));
}

}  // namespace atl::aggregation
