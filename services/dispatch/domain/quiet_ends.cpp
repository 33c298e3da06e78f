#include <algorithm>
#include <cstdint>

#include "services/dispatch/domain/model_guard.h"
#include "services/dispatch/domain/round_steps.h"

// How many ends of tasks change nothing in a job, so that it need not be looked at after each.
namespace atl::dispatch {

TaskCount count_tasks(const JobView& job, const std::vector<const Task*>& tasks) {
    TaskCount count;
    for (const Task* task : tasks) {
        if (task->state == TaskState::kDone) ++count.done;
        if (is_finished(task->state)) continue;
        ++count.unfinished;
        if (job.waiting_since_ms.contains(task->facility)) ++count.silent;
    }
    return count;
}

namespace {

QuietEnds quiet_trainings(const JobView& job) {
    const TaskCount count = count_tasks(job, round_tasks(job, TaskKind::kTrain, job.round.number));
    const std::int64_t needed = needed_by_round(job);
    // Until the quorum is in, or cannot be any more; then until all but the silent ones have ended.
    if (count.done < needed) return {needed - count.done - 1, count.done + count.unfinished - needed};
    const std::int64_t ends = count.unfinished - count.silent - 1;
    return {ends, ends};
}

QuietEnds quiet_evaluations(const JobView& job, const Round& round) {
    const auto tasks = round_tasks(job, TaskKind::kEvaluate, round.number);
    const TaskCount count = count_tasks(job, tasks);
    const auto total = static_cast<std::int64_t>(tasks.size());
    std::int64_t ends = count.unfinished - count.silent - 1;
    const std::int64_t until_half = (total + 1) / 2 - (total - count.unfinished) - 1;
    if (is_last_round_closed(job) && round.number == job.round.number && until_half >= 0)
        ends = std::min(ends, until_half);
    ends = std::min(ends, quiet_judgements(job, round));
    return {ends, ends};
}

}  // namespace

void foresee_quiet_ends(JobDecision& decision, const JobView& job) {
    auto& quiet = decision.quiet_ends;
    if (job.round.state == RoundState::kTraining) quiet[job.round.number] = quiet_trainings(job);
    for (const Round& round : job.closed) quiet[round.number] = quiet_evaluations(job, round);
    for (const Round& changed : decision.rounds) quiet.erase(changed.number);
    for (auto& [round, quiet_ends] : quiet)
        quiet_ends = {std::max<std::int64_t>(quiet_ends.ends, 0), std::max<std::int64_t>(quiet_ends.losses, 0)};
}

}  // namespace atl::dispatch
