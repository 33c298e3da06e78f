#include <algorithm>
#include <set>

#include "services/dispatch/domain/round_steps.h"
#include "services/dispatch/domain/update_check.h"

// What dispatch tells the aggregation of a round, and what it reads of the answer.
namespace atl::dispatch {

using json::Json;

Result<std::vector<Refusal>> parse_refused(const Json& list, const std::string& path) {
    std::vector<Refusal> refused;
    for (const Json& item : list) {
        json::ObjectReader reader(item, path);
        refused.push_back({reader.required_string("task"), reader.required_string("reason"),
                           reader.one_of("fault", {"site", "store"}, "site") == "site"});
        reader.allow_unknown();
        ATOLL_RETURN_IF_ERROR(reader.finish());
    }
    return refused;
}

namespace {

// What a site says of its data is believed as far as the others' is like it. Of two neither is the usual one.
BelievedSize believed_size(const std::vector<const Task*>& trainings) {
    constexpr std::int64_t kTimes = 10;
    constexpr std::size_t kTelling = 3;
    const auto lower_median = [&](std::int64_t TrainParams::* member) {
        std::vector<std::int64_t> values;
        for (const Task* task : trainings) values.push_back(std::get<TrainParams>(task->params).*member);
        std::sort(values.begin(), values.end());
        return values.empty() ? 0 : values[(values.size() - 1) / 2];
    };
    const DatasetSize usual = {lower_median(&TrainParams::rows), lower_median(&TrainParams::seq_len)};
    const bool are_few = trainings.size() < kTelling || usual.rows > INT64_MAX / kTimes;
    return {usual, are_few ? INT64_MAX : kTimes * usual.rows};
}

// How much the task's training was given to do, whatever its site says that it did.
Json assigned_to(const Task& task, const BelievedSize& believed) {
    const auto& train = std::get<TrainParams>(task.params);
    return aggregate::to_json(
        assigned_work(train.training, train.resources.ranks(), {train.rows, train.seq_len}, believed));
}

// The participants that are still among those of the job and have no update in its round.
Json missing_updates(const JobView& job, const std::vector<const Task*>& accepted) {
    Json missing = Json::array();
    for (const auto& participant : job.spec.participants) {
        const std::string& facility = participant.data.facility;
        const bool has_one =
            std::any_of(accepted.begin(), accepted.end(), [&](const Task* task) { return task->facility == facility; });
        if (!has_one && !is_passed_over(job, facility)) missing.push_back(facility);
    }
    return missing;
}

}  // namespace

// One that came in after the round closed is not among them.
std::vector<const Task*> accepted_updates(const JobView& job) {
    auto tasks = handed_in_updates(job);
    const std::set<std::string> accepted(job.round.accepted.begin(), job.round.accepted.end());
    std::erase_if(tasks, [&](const Task* task) { return !accepted.contains(task->id); });
    return tasks;
}

Json closed_round(const JobView& job) {
    Json updates = Json::array();
    const auto accepted = accepted_updates(job);
    const BelievedSize believed = believed_size(accepted);
    for (const Task* task : accepted)
        updates.push_back({{"facility", task->facility},
                           {"task", task->id},
                           {"version", task->result.at("version")},
                           {"samples", task->result.at("samples")},
                           {"tokens", task->result.at("tokens")},
                           {"assigned", assigned_to(*task, believed)}});
    Json round = {{"job", job.id},
                  {"name", job.spec.name},
                  {"round", job.round.number},
                  {"model", job.spec.output_model},
                  {"base", job.round.base},
                  {"strategy", aggregate::to_json(job.spec.strategy)},
                  {"quorum", needed_by_round(job)},
                  {"updates", std::move(updates)}};
    if (job.spec.strategy.counts_absent) round["missing"] = missing_updates(job, accepted);
    return round;
}

Json contributions_of(const JobView& job, const Json& recorded) {
    Json contributions = Json::array();
    for (const Task* task : accepted_updates(job)) {
        const auto made = std::find_if(recorded.begin(), recorded.end(), [&](const Json& one) {
            return one.is_object() && one.value("facility", Json()) == task->facility &&
                   one.value("version", Json()) == task->result.at("version");
        });
        if (made == recorded.end()) continue;
        Json& one = contributions.emplace_back(Json{{"task", task->id}, {"facility", task->facility}});
        for (const auto& [key, name] : {std::pair{"weight", "share"},
                                        {"norm", "norm"},
                                        {"cosine", "cosine"},
                                        {"counted", "counted"},
                                        {"control_variate_norm", "control_variate_norm"},
                                        {"control_variate_counted", "control_variate_counted"}})
            if (const Json number = made->value(key, Json()); number.is_number()) one[name] = number;
    }
    return contributions;
}

}  // namespace atl::dispatch
