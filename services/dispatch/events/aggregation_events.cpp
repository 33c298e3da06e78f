#include "services/dispatch/events/aggregation_events.h"

#include <string>
#include <vector>

#include "services/dispatch/db/jobs.h"
#include "services/dispatch/domain/aggregation_check.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

struct AggregationAnswer {
    std::string job;
    AggregationResult result;
};

// Only what is needed is looked at: an answer may say more. An error makes the event a dead letter.
Result<AggregationAnswer> read_answer(const events::Event& event) {
    const auto text = [&](const char* key) {
        const auto found = event.data.find(key);
        return found != event.data.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    if (!event.data.is_object()) return invalid_argument("data", "the event's data is not an object");
    AggregationAnswer answer{text("job"), {}};
    if (answer.job.empty()) return invalid_argument("data.job", "the event names no job");
    ATOLL_TRY(answer.result.refused,
              parse_refused(event.data.value("updates_refused", json::Json::array()), "data.updates_refused"));
    if (!event.data.contains("round") || !event.data["round"].is_number_integer())
        return invalid_argument("data.round", "the event names no round");
    answer.result.round = event.data["round"];
    if (event.type == "atoll.aggregation.failed.v1") {
        answer.result.error = text("error");
        return answer;
    }
    answer.result.version = text("version");
    if (!digest::is_sha256(answer.result.version))
        return invalid_argument("data.version", "the event names no version");
    return answer;
}

// The version that a completed round names, as the round made it.
Result<json::Json> find_global(const Catalog& catalog, const std::string& model, const AggregationAnswer& answer) {
    if (answer.result.version.empty()) return json::Json();
    auto global = catalog.global_of_round(model, answer.job, answer.result.round, answer.result.version);
    // The store's own trouble says nothing of the event.
    if (!global.ok()) return unavailable("the store: " + describe(global.error()));
    if (global->is_null())
        return conflict("the store has no version " + answer.result.version + " of model " + model + " that round " +
                            std::to_string(answer.result.round) + " of job " + answer.job + " has made",
                        "data.version");
    return global;
}

}  // namespace

Status apply_aggregation_event(pg::Transaction& transaction, const Catalog& catalog, const Topics& topics,
                               const events::Event& event) {
    if (event.type != "atoll.aggregation.completed.v1" && event.type != "atoll.aggregation.failed.v1") return {};
    ATOLL_TRY(AggregationAnswer answer, read_answer(event));
    ATOLL_TRY(const auto model, find_output_model(transaction.connection(), answer.job));
    if (!model) return {};                                                     // the job has ended meanwhile
    ATOLL_TRY(const json::Json global, find_global(catalog, *model, answer));  // asked while the job is not locked
    ATOLL_TRY(const JobView job, lock_job(transaction, answer.job));
    ATOLL_TRY(const bool counts, check_aggregation(job, answer.result, global));
    if (!counts) return {};
    if (global.is_object()) answer.result.contributions = global.value("contributions", json::Json::array());
    return apply_decision(transaction, topics, job, apply_aggregation(job, answer.result, job.now_ms));
}

}  // namespace atl::dispatch
