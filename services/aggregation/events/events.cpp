#include "services/aggregation/events/events.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "services/aggregation/db/repository.h"
#include "shared/base/text.h"
#include "shared/http/client/client.h"
#include "shared/json/json.h"

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

// Of many each reason is shorter, as an event has 512 KiB at most; GET /v1/aggregations/{job}/{round} has them whole.
nlohmann::json list_refused(const std::vector<round::RefusedUpdate>& refused) {
    constexpr std::size_t kListBytesMax = 500'000, kReasonBytesMax = 500;
    nlohmann::json list = to_json(refused);
    for (auto& one : list) one["reason"] = "";
    const std::size_t names = std::min(list.dump().size(), kListBytesMax);
    // In JSON a character may take two.
    const std::size_t most = std::clamp<std::size_t>(
        (kListBytesMax - names) / 2 / std::max<std::size_t>(refused.size(), 1), 8, kReasonBytesMax);
    for (std::size_t i = 0; i < refused.size(); ++i) list[i]["reason"] = shorten(refused[i].reason, most);
    return list;
}

// Dispatch asks a second time when no answer came: an answer that was given may have been lost as well.
Status answer_again(pg::Transaction& transaction, const nlohmann::json& known, const std::string& topic_prefix) {
    spdlog::info("round {} of job {}: known already", known.at("round").dump(), known.at("job").dump());
    ATOLL_TRY(round::ClosedRound round, round::parse_closed_round(known));
    ATOLL_RETURN_IF_ERROR(leave_out(round, known.at("refused")));
    if (known.at("state") == "completed") return add_completed(transaction, topic_prefix, round, known.at("version"));
    if (known.at("state") == "failed")
        return add_failed(transaction, topic_prefix, round.job, round.round, known.at("error"), round.refused);
    return {};
}

// What a closed round is made of; nothing where its job has ended since.
Result<std::optional<nlohmann::json>> ask_dispatch(const Settings& settings, const std::string& job,
                                                   std::int64_t round) {
    http::ClientOptions options;
    options.base_url = settings.dispatch_url;
    ATOLL_TRY(options.token, read_token(settings));
    options.timeout = std::chrono::seconds(15);
    options.attempts_max = 1;  // the inbox tries again
    auto closed =
        http::Client(std::move(options))
            .get_json("/v1/jobs/" + http::percent_encode(job) + "/rounds/" + std::to_string(round) + "/updates");
    if (closed.ok()) return std::optional(std::move(closed).value());
    const Error& error = closed.error();
    const bool is_final =
        (error.code == ErrorCode::kNotFound || error.code == ErrorCode::kConflict) && is_answer(error);
    if (!is_final) return unavailable("dispatch: " + describe(error));
    if (error.cause != Cause::kJobEnded) return error;
    spdlog::info("round {} of job {} is not aggregated: {}", round, job, error.message);
    return std::optional<nlohmann::json>();
}

}  // namespace

std::string rounds_topic(const std::string& topic_prefix) {
    return topic_prefix + "atoll.rounds";
}

std::string results_topic(const std::string& topic_prefix) {
    return topic_prefix + "atoll.aggregations";
}

Status apply_event(pg::Transaction& transaction, const events::Event& event, const Settings& settings) {
    if (event.type != "atoll.round.closed.v1") return {};
    json::ObjectReader reader(event.data, "data");
    const std::string job = reader.required_string("job");
    const std::int64_t number = reader.required_integer("round", 1, 1'000'000);
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    const auto known = find_aggregation(transaction, job, number);
    if (known.ok()) return answer_again(transaction, *known, settings.topic_prefix);
    if (known.error().code != ErrorCode::kNotFound) return known.error();
    const Status taken = take_round(transaction, job, number, settings);
    if (taken.ok() || taken.error().code != ErrorCode::kInvalidArgument) return taken;
    return add_failed(transaction, settings.topic_prefix, job, number, describe(taken.error()), {});  // dispatch waits
}

Status take_round(pg::Transaction& transaction, const std::string& job, std::int64_t number, const Settings& settings) {
    ATOLL_TRY(const auto closed, ask_dispatch(settings, job, number));
    if (!closed) return {};
    ATOLL_TRY(const round::ClosedRound round, round::parse_closed_round(*closed));
    if (round.job != job || round.round != number) return unavailable("dispatch told of another round");
    ATOLL_RETURN_IF_ERROR(insert_aggregation(transaction, round));
    spdlog::info("round {} of job {}: {} updates", number, job, round.updates.size());
    return {};
}

Status add_completed(pg::Transaction& transaction, const std::string& topic_prefix, const round::ClosedRound& round,
                     const std::string& version) {
    events::Event event = make_event("atoll.aggregation.completed.v1", round.job, round.round);
    event.data["version"] = version;
    event.data["model"] = round.model;
    event.data["updates_refused"] = list_refused(round.refused);
    return events::add_to_outbox(transaction, results_topic(topic_prefix), round.job, std::move(event));
}

Status add_failed(pg::Transaction& transaction, const std::string& topic_prefix, const std::string& job,
                  std::int64_t round, const std::string& error, const std::vector<round::RefusedUpdate>& refused) {
    events::Event event = make_event("atoll.aggregation.failed.v1", job, round);
    event.data["error"] = error;
    event.data["updates_refused"] = list_refused(refused);
    return events::add_to_outbox(transaction, results_topic(topic_prefix), job, std::move(event));
}

}  // namespace atl::aggregation
