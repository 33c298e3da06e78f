#include "services/dispatch/domain/aggregation_check.h"

#include <algorithm>
#include <set>
#include <utility>

namespace atl::dispatch {
namespace {

using json::Json;
using Maker = std::pair<std::string, std::string>;  // a facility, and the version that it has handed in

std::string round_name(const JobView& job, std::int64_t number) {
    return "round " + std::to_string(number) + " of job " + job.id;
}

Result<std::set<Maker>> read_contributions(const Json& list) {
    std::set<Maker> makers;
    for (const Json& item : list) {
        json::ObjectReader reader(item, "contributions");
        makers.emplace(reader.required_string("facility"), reader.required_string("version"));
        reader.allow_unknown();
        ATOLL_RETURN_IF_ERROR(reader.finish());
    }
    return makers;
}

// It is made from the round's base, of the updates that count and of all of them but those that were refused.
Status check_global(const JobView& job, const Json& global, const std::set<Maker>& used, const std::set<Maker>& left) {
    json::ObjectReader reader(global);
    const Json& parents = reader.array_or_null("parents");
    const Json& contributions = reader.array_or_null("contributions");
    reader.allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(const std::set<Maker> makers, read_contributions(contributions));
    if (std::find(parents.begin(), parents.end(), job.round.base) == parents.end())
        return conflict(
            "the version was not made from the base of " + round_name(job, job.round.number) + ", " + job.round.base,
            "data.version");
    for (const Maker& maker : makers)
        if (!used.contains(maker))
            return conflict("the version holds " + maker.second + " of " + maker.first + ", which does not count in " +
                                round_name(job, job.round.number),
                            "data.version");
    for (const Maker& maker : used)
        if (makers.contains(maker) == left.contains(maker))
            return conflict("the update of " + maker.first + " must either be in the version or have been refused",
                            "data.version");
    return {};
}

}  // namespace

Result<bool> check_aggregation(const JobView& job, const AggregationResult& result, const Json& global) {
    if (is_finished(job.state)) return false;
    const bool is_failure = result.version.empty();
    const bool is_current = result.round == job.round.number;
    const bool is_over =
        result.round < job.round.number ||
        (is_current && (job.round.state == RoundState::kClosed || job.round.state == RoundState::kCancelled));
    if (is_over && (!is_failure || job.round.state == RoundState::kCancelled)) return false;
    if (!is_current || job.round.state != RoundState::kAggregating)
        return conflict(round_name(job, result.round) + " waits for no aggregation: the job is at round " +
                            std::to_string(job.round.number) + ", which is " + to_string(job.round.state),
                        "data.round");
    std::set<Maker> used;
    std::set<Maker> left;
    std::set<std::string> tasks;
    for (const Task* task : accepted_updates(job)) {
        const Maker maker{task->facility, task->result.at("version").get<std::string>()};
        const bool is_refused = std::any_of(result.refused.begin(), result.refused.end(),
                                            [&](const Refusal& refusal) { return refusal.task == task->id; });
        if (is_refused) left.insert(maker);
        used.insert(maker);
        tasks.insert(task->id);
    }
    for (const Refusal& refusal : result.refused)
        if (!tasks.contains(refusal.task))
            return conflict("task " + refusal.task + " has no update that counts in " + round_name(job, result.round),
                            "data.updates_refused");
    if (!is_failure) ATOLL_RETURN_IF_ERROR(check_global(job, global, used, left));
    return true;
}

}  // namespace atl::dispatch
