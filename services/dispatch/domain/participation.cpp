#include <algorithm>

#include "services/dispatch/domain/round_steps.h"

// Who takes part in the rounds to come, and whether that is enough.
namespace atl::dispatch {
namespace {

// Without a quorum of its own a round needs an update of everyone who has not been left out.
std::int64_t updates_needed(const JobView& job) {
    const std::int64_t left_out = std::count_if(job.records.begin(), job.records.end(),
                                                [](const auto& record) { return record.second.is_left_out; });
    const auto left = static_cast<std::int64_t>(job.spec.participants.size()) - left_out;
    return std::max<std::int64_t>(std::min(job.spec.updates_needed(), left), 1);
}

std::string why_passed_over(const JobView& job, const std::string& facility) {
    if (!is_quarantined(job, facility)) return job.disallowed.at(facility);
    const Record& record = job.records.at(facility);
    if (record.is_left_out) return facility + " is left out";
    return facility + " is in quarantine after " + std::to_string(record.refusals) +
           " refused updates: " + record.reason;
}

}  // namespace

// The current round may have been opened before a facility was readmitted.
std::int64_t needed_by_round(const JobView& job) {
    const auto trainings = static_cast<std::int64_t>(round_tasks(job, TaskKind::kTrain, job.round.number).size());
    return std::clamp<std::int64_t>(updates_needed(job), 1, std::max<std::int64_t>(trainings, 1));
}

bool is_quarantined(const JobView& job, const std::string& facility) {
    const auto record = job.records.find(facility);
    return record != job.records.end() &&
           (record->second.is_left_out || record->second.refusals >= job.spec.quarantine_after);
}

bool is_passed_over(const JobView& job, const std::string& facility) {
    return is_quarantined(job, facility) || job.disallowed.contains(facility);
}

std::optional<std::string> lack_of_participants(const JobView& job) {
    constexpr int kNamedMax = 8;  // the reason has to fit into an event, and before people
    std::int64_t left = 0;
    std::string why;
    int passed_over = 0;
    for (const auto& participant : job.spec.participants) {
        const std::string& facility = participant.data.facility;
        if (!is_passed_over(job, facility)) {
            ++left;
            continue;
        }
        if (++passed_over > kNamedMax) continue;
        why += "; " + why_passed_over(job, facility);
    }
    if (left >= updates_needed(job)) return std::nullopt;
    if (passed_over > kNamedMax) why += "; and " + std::to_string(passed_over - kNamedMax) + " more";
    return "round " + std::to_string(job.round.number + 1) + " needs " + updates_text(updates_needed(job)) +
           " and can get " + std::to_string(left) + why;
}

std::string updates_text(std::int64_t count) {
    return std::to_string(count) + (count == 1 ? " update" : " updates");
}

bool may_be_allowed_again(JobView job) {
    job.disallowed.clear();
    return !lack_of_participants(job);
}

void tell_passed_over(JobDecision& decision, const JobView& job, std::int64_t next_round) {
    for (const Task* task : round_tasks(job, TaskKind::kTrain, job.round.number))
        if (const auto found = job.disallowed.find(task->facility); found != job.disallowed.end())
            add_event(decision, job, "atoll.participant.left_out.v1",
                      {{"round", next_round}, {"facility", task->facility}, {"error", found->second}});
}

std::vector<DatasetCopy> evaluation_copies(const JobView& job) {
    std::vector<DatasetCopy> copies = job.spec.evaluation_copies;
    std::erase_if(copies, [&](const DatasetCopy& copy) { return job.disallowed.contains(copy.facility); });
    return copies;
}

}  // namespace atl::dispatch
