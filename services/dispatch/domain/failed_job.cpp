#include <set>
#include <string>

#include "services/dispatch/domain/round_steps.h"

namespace atl::dispatch {
namespace {

Status check_only_leaves_out(const JobView& job, const ResumeOrder& order) {
    if (!order.accepts) return check_left_out(job, order);
    return invalid_argument("accept", "no model waits to be accepted in a failed job; leave --accept out");
}

// The command for a round whose aggregation failed.
std::string how_to_train_again(const JobView& job) {
    std::set<std::string> refused;  // by facility
    for (const Refusal& refusal : job.round.refused)
        for (const Task& task : job.tasks)
            if (task.id == refusal.task && refusal.is_sites_fault) refused.insert(task.facility);
    std::string command = "`atoll job resume " + job.id + " --from-round " + std::to_string(job.round.parent);
    for (const std::string& facility : refused) command += " --without " + facility;
    const std::string what = "trains it again from the model of round " + std::to_string(job.round.parent);
    return command + "` " + what + (refused.empty() ? "" : ", without whoever's update was refused");
}

// Why a failed job cannot train its round again; nothing: it can.
std::optional<Error> check_resumable(const JobView& job) {
    if (job.state != JobState::kFailed)
        return conflict(std::string("the job is ") + to_string(job.state) + ": only one that failed goes on", "state");
    if (const Status quiet = check_quiet(job); !quiet.ok()) return quiet.error();
    if (job.round.state != RoundState::kClosed && !job.round.accepted.empty())
        return conflict("the aggregation of round " + std::to_string(job.round.number) +
                            " has failed, and would fail again; " + how_to_train_again(job),
                        "state");
    JobView before = job;  // the round that is trained again is the next one of what came before
    if (job.round.state != RoundState::kClosed) --before.round.number;
    if (const auto lack = lack_of_participants(before)) return conflict(*lack, "state");
    return std::nullopt;
}

// Each try leaves tasks, attempts and their logs.
Status check_tries(const JobView& job) {
    const std::size_t trainings = round_tasks(job, TaskKind::kTrain, job.round.number).size();
    if (trainings < kTriesMax * job.spec.participants.size()) return {};
    return conflict("round " + std::to_string(job.round.number) + " has been tried " + std::to_string(kTriesMax) +
                        " times: submit a new job that begins with the newest version",
                    "state");
}

}  // namespace

Status check_quiet(const JobView& job) {
    for (const Task& task : job.tasks) {
        const bool is_waiting_cleaning = task.kind() == TaskKind::kClean && !task.attempt;
        if (!is_finished(task.state) && !is_waiting_cleaning && task.kind() == TaskKind::kClean)
            return conflict(
                "what the job left at " + task.facility + " is being removed just now; try again in a minute", "state");
        if (!is_finished(task.state) && !is_waiting_cleaning)
            return conflict("what the job had under way at " + task.facility +
                                " has not ended yet; try again when it has (`atoll round show` tells)",
                            "state");
    }
    return {};
}

Result<JobDecision> resume_failed_job(const JobView& failed, const ResumeOrder& order, std::int64_t now_ms) {
    ATOLL_RETURN_IF_ERROR(check_only_leaves_out(failed, order));
    ATOLL_RETURN_IF_ERROR(check_rounds_made(failed));
    ATOLL_RETURN_IF_ERROR(check_tries(failed));
    JobDecision decision;
    JobView job = failed;
    leave_out(decision, job, order, job.round.state == RoundState::kClosed ? job.round.number : job.round.parent);
    if (const auto why_not = check_resumable(job)) return *why_not;
    decision.records = job.records;
    decision.job_state = JobState::kRunning;
    for (const Round& closed : job.closed) evaluate_again(decision, job, closed, now_ms);
    for (const Task& task : job.tasks)  // cleanings that have not begun: the job cleans up at its next end
        if (!is_finished(task.state)) decision.cancelled_tasks.push_back(task.id);
    Round round = job.round;
    add_event(decision, job, "atoll.job.resumed.v1", {{"round", round.number}});
    if (round.state == RoundState::kClosed) {  // it had too few participants for the next one
        open_round(decision, job, round.number + 1, round, now_ms);
        return decision;
    }
    round.state = RoundState::kTraining;
    round.error.clear();
    round.deadline_ms = now_ms + job.spec.round_deadline_s * 1000;
    decision.rounds.push_back(round);
    std::set<std::int64_t> handed_in;
    for (const Task* task : handed_in_updates(job)) handed_in.insert(std::get<TrainParams>(task->params).participant);
    for (std::size_t i = 0; i < job.spec.participants.size(); ++i)
        if (!handed_in.contains(static_cast<std::int64_t>(i)) &&
            !is_passed_over(job, job.spec.participants[i].data.facility))
            decision.new_tasks.push_back(training_task(job, i, round));
    tell_opened(decision, job, round);
    return decision;
}

}  // namespace atl::dispatch
