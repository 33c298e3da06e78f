#include <algorithm>
#include <map>

#include "services/dispatch/domain/round_steps.h"
#include "shared/base/text.h"

namespace atl::dispatch {
using json::Json;

namespace {

// A failed job goes back to an earlier model as one that is paused does.
Status check_state(const JobView& job, const ResumeOrder& order) {
    if (job.state == JobState::kFailed && order.from_round) return check_quiet(job);
    if (job.state == JobState::kPaused) return {};
    return conflict(std::string("the job is ") + to_string(job.state) + ", not paused", "state");
}

Status check_order(const JobView& job, const ResumeOrder& order) {
    ATOLL_RETURN_IF_ERROR(check_state(job, order));
    if (order.accepts && !(order.without.empty() && !order.from_round))
        return invalid_argument("accept", "goes on from the newest model: leave out \"without\" and \"from_round\"");
    if (order.accepts && !job.spoiled.is_object())
        return invalid_argument("accept", "no model waits to be accepted; leave --accept out");
    if (order.is_empty() && job.spoiled.is_object())
        return conflict(job.spoiled.value("reason", "a round has spoiled the model") +
                            "; say how to go on: --accept, --without FACILITY or --from-round N",
                        "state");
    return check_left_out(job, order);
}

// The round whose model the job goes on from.
Result<Round> find_start(const JobView& job, const std::vector<Round>& rounds, const ResumeOrder& order) {
    std::int64_t wanted = job.round.state == RoundState::kClosed ? job.round.number : job.round.parent;
    if (!order.accepts && job.spoiled.is_object()) wanted = job.spoiled.value("good_round", wanted);
    if (order.from_round) wanted = *order.from_round;
    const auto found = std::find_if(rounds.begin(), rounds.end(), [&](const Round& round) {
        return round.number == wanted && round.state == RoundState::kClosed;
    });
    if (found == rounds.end())
        return invalid_argument("from_round", "round " + std::to_string(wanted) + " has made no model");
    if (found->index >= job.spec.rounds && !order.accepts)
        return invalid_argument("from_round",
                                "round " + std::to_string(wanted) + " is the job's last" +
                                    (job.spoiled.is_object() ? ": to keep its model say --accept"
                                                             : ", and resuming without options keeps its model"));
    return *found;
}

// The newest round up to `from`, along its line, whose model has an update of each facility.
std::map<std::string, std::int64_t> counted_rounds(const std::vector<Round>& rounds, const Round& from) {
    std::map<std::int64_t, const Round*> by_number;
    for (const Round& round : rounds) by_number[round.number] = &round;
    std::map<std::string, std::int64_t> counted;
    for (const Round* round = &from; round->number > 0; round = by_number.at(round->parent)) {
        for (const Json& one : round->contributions)
            if (one.is_object() && one.value("counted", 1.0) > 0)
                counted.emplace(one.value("facility", ""), round->number);
        if (!by_number.contains(round->parent)) break;
    }
    return counted;
}

// Rounds that the job's model does not come from any more.
void set_aside(JobDecision& decision, const std::vector<Round>& rounds, const Round& from) {
    for (Round round : rounds) {
        if (round.number <= from.number || round.state != RoundState::kClosed || !round.error.empty()) continue;
        round.error = "the job went back to the model of round " + std::to_string(from.number);
        round.evaluated = true;
        decision.rounds.push_back(std::move(round));
    }
}

}  // namespace

void evaluate_again(JobDecision& decision, const JobView& job, Round round, std::int64_t now_ms) {
    std::vector<Task> again;
    const std::vector<const Task*> evaluations = round_tasks(job, TaskKind::kEvaluate, round.number);
    for (const Task* lost : lost_evaluations(evaluations)) {
        if (job.disallowed.contains(lost->facility)) continue;
        const auto tries = std::ranges::count(evaluations, lost->facility, &Task::facility);
        if (tries >= static_cast<std::ptrdiff_t>(kTriesMax)) continue;
        Task task;
        task.round = lost->round;
        task.facility = lost->facility;
        task.attempts_max = lost->attempts_max;
        task.params = lost->params;
        again.push_back(std::move(task));
    }
    if (again.empty()) return;
    decision.new_tasks.insert(decision.new_tasks.end(), again.begin(), again.end());
    round.evaluate_by_ms = now_ms + job.spec.round_deadline_s * 1000;
    decision.rounds.push_back(std::move(round));
}

// Going back to an earlier round is for when a model is spoiled: whoever does it without end fills the database.
Status check_rounds_made(const JobView& job) {
    const std::int64_t most = 10 * job.spec.rounds + 100;
    if (job.round.number < most) return {};
    return conflict("the job has opened " + std::to_string(job.round.number) +
                        " rounds by going on again and again, and a job of " + std::to_string(job.spec.rounds) +
                        " opens " + std::to_string(most) + " at most: submit a new one that begins with its model",
                    "state");
}

Status check_left_out(const JobView& job, const ResumeOrder& order) {
    for (const std::string& facility : order.without)
        if (std::none_of(job.spec.participants.begin(), job.spec.participants.end(),
                         [&](const Participant& one) { return one.data.facility == facility; }))
            return invalid_argument("without", "the job has no participant " + in_quotes(facility));
    return {};
}

void leave_out(JobDecision& decision, JobView& job, const ResumeOrder& order, std::int64_t from_round) {
    for (const std::string& facility : order.without) {
        job.records[facility].is_left_out = true;
        add_event(decision, job, "atoll.participant.left_out.v1",
                  {{"round", job.round.number}, {"facility", facility}, {"from_round", from_round}});
    }
}

Result<JobDecision> resume_job(const JobView& job, const std::vector<Round>& rounds, const ResumeOrder& order) {
    ATOLL_RETURN_IF_ERROR(check_order(job, order));
    ATOLL_RETURN_IF_ERROR(check_rounds_made(job));
    ATOLL_TRY(const Round from, find_start(job, rounds, order));
    JobDecision decision;
    JobView now = job;
    for (auto& [facility, record] : now.records) {
        record.counted_round = record.best_round = record.opposed_rounds = 0;
        record.best_perplexity = 0;
    }
    for (const auto& [facility, round] : counted_rounds(rounds, from)) now.records[facility].counted_round = round;
    leave_out(decision, now, order, from.number);
    if (const auto lack = lack_of_participants(now)) return conflict(*lack, "without");
    decision.records = now.records;
    decision.job_state = JobState::kRunning;
    decision.spoiled = Json();
    decision.judged_until = job.round.number;
    cancel_round(decision, job, "the job went on from the model of round " + std::to_string(from.number));
    set_aside(decision, rounds, from);
    if (job.state == JobState::kFailed)
        for (const Task& task : job.tasks)  // cleanings that have not begun: the job cleans up at its next end
            if (!is_finished(task.state)) decision.cancelled_tasks.push_back(task.id);
    add_event(decision, job, "atoll.job.resumed.v1",
              {{"round", job.round.number},
               {"from_round", from.number},
               {"version", from.version},
               {"without", order.without},
               {"accepted", order.accepts}});
    for (const Round& closed : job.closed)
        if (closed.number == from.number) evaluate_again(decision, job, closed, job.now_ms);
    if (from.index < job.spec.rounds) open_round(decision, now, job.round.number + 1, from, job.now_ms);
    return decision;
}

Result<JobDecision> resume_round(const JobView& job) {
    JobDecision decision;
    std::string lack;
    for (const Task& task : job.tasks) {
        const auto found = job.disallowed.find(task.facility);
        if (found == job.disallowed.end() || is_finished(task.state) || task.kind() == TaskKind::kClean) continue;
        decision.cancelled_tasks.push_back(task.id);
        decision.reasons[task.id] = found->second;
        if (task.kind() != TaskKind::kTrain || task.round != job.round.number) continue;
        lack += (lack.empty() ? "" : "; ") + found->second;
        add_event(decision, job, "atoll.participant.left_out.v1",
                  {{"round", job.round.number}, {"facility", task.facility}, {"error", found->second}});
    }
    if (!job.closed.empty()) evaluate_again(decision, job, job.closed.back(), job.now_ms);
    if (lack.empty() || job.round.state != RoundState::kTraining) return decision;
    const auto tasks = round_tasks(job, TaskKind::kTrain, job.round.number);
    const auto left = std::count_if(tasks.begin(), tasks.end(), [&](const Task* task) {
        return is_finished(task->state) ? task->state == TaskState::kDone : !job.disallowed.contains(task->facility);
    });
    if (left >= needed_by_round(job)) return decision;
    return conflict("round " + std::to_string(job.round.number) + " needs " + updates_text(needed_by_round(job)) +
                        " and can get " + std::to_string(left) + "; " + lack +
                        "; --without FACILITY goes on without it",
                    "state");
}

JobDecision readmit(const JobView& job, const std::string& facility) {
    JobDecision decision;
    const auto record = job.records.find(facility);
    if (record == job.records.end()) return decision;
    if (record->second.refusals == 0 && !record->second.is_left_out) return decision;
    Record& again = decision.records[facility] = record->second;
    again.refusals = 0;
    again.reason.clear();
    again.is_left_out = false;
    add_event(decision, job, "atoll.participant.readmitted.v1",
              {{"round", job.round.number}, {"facility", facility}, {"refusals", record->second.refusals}});
    return decision;
}

}  // namespace atl::dispatch
