#include "services/dispatch/db/job_orders.h"

#include <algorithm>

#include "services/dispatch/db/tasks.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

// Deadlines move by the time that the job, or a round begun or closed since, stood still.
Status resume(pg::Transaction& transaction, const std::string& job) {
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "UPDATE rounds r SET deadline_at = deadline_at + (now() - greatest(j.paused_at, r.opened_at)), "
        "evaluate_by = evaluate_by + (now() - greatest(j.paused_at, r.closed_at)) FROM jobs j "
        "WHERE j.id = $1 AND r.job_id = $1 AND (r.state = 'training' OR (r.state = 'closed' AND NOT r.evaluated))",
        {job}));
    ATOLL_RETURN_IF_ERROR(
        transaction.query("UPDATE jobs SET state = 'running', paused_at = NULL WHERE id = $1", {job}));
    ATOLL_RETURN_IF_ERROR(transaction.query(  // what was held back
        "UPDATE tasks t SET next_step_at = now() WHERE job_id = $1 AND state = 'running' AND EXISTS (SELECT 1 FROM "
        "attempts a WHERE a.task_id = t.id AND a.step = 'submitting')",
        {job}));
    return tell_workers(transaction);
}

// The newest model's round waits for its evaluations again where one of them has failed or was cut short. Those at a
// facility that is not for the job any more do not count, as nobody tries them again. A job that cannot be read stays
// as it is.
Status reopen_evaluations(pg::Transaction& transaction, const std::string& id) {
    const auto job = lock_job(transaction, id);
    if (!job.ok()) return {};
    json::Json disallowed = json::Json::array();
    for (const auto& [facility, why] : job->disallowed) disallowed.push_back(facility);
    ATOLL_RETURN_IF_ERROR(transaction.query(
        "UPDATE rounds r SET evaluated = false WHERE r.job_id = $1 AND r.evaluated AND r.number = (SELECT max(number) "
        "FROM rounds WHERE job_id = $1 AND state = 'closed' AND error = '') AND EXISTS (SELECT 1 FROM tasks t WHERE "
        "t.job_id = $1 AND t.round = r.number AND t.kind = 'evaluate' AND t.state IN ('failed', 'cancelled') AND "
        "t.facility NOT IN (SELECT jsonb_array_elements_text($2::jsonb)) AND NOT EXISTS (SELECT 1 FROM tasks other "
        "WHERE other.job_id = $1 AND other.round = r.number AND other.kind = 'evaluate' AND other.state = 'done' AND "
        "other.facility = t.facility AND other.params->>'dataset' = t.params->>'dataset' AND other.params->>'path' = "
        "t.params->>'path'))",
        {id, disallowed}));
    return {};
}

}  // namespace

Status readmit_participant(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                           const std::string& facility) {
    ATOLL_TRY(const JobView job, lock_job(transaction, id));
    const auto& participants = job.spec.participants;
    if (std::none_of(participants.begin(), participants.end(),
                     [&](const Participant& one) { return one.data.facility == facility; }))
        return not_found("the job has no participant " + in_quotes(facility), "facility");
    if (is_finished(job.state) && job.state != JobState::kFailed)
        return conflict(std::string("the job is ") + to_string(job.state) + " and trains no more", "state");
    return apply_decision(transaction, topics, job, readmit(job, facility));
}

namespace {

Status resume_failed(pg::Transaction& transaction, const Topics& topics, const std::string& id,
                     const ResumeOrder& order) {
    const auto job = lock_job(transaction, id);
    if (!job.ok() && job.error().code == ErrorCode::kInternal)
        return conflict("the job cannot go on: " + describe(job.error()), "state");
    ATOLL_RETURN_IF_ERROR(job);
    JobDecision decision;
    if (order.from_round) {
        ATOLL_TRY(const std::vector<Round> rounds, all_rounds(transaction, id));
        ATOLL_TRY(decision, resume_job(*job, rounds, order));
    } else {
        ATOLL_TRY(decision, resume_failed_job(*job, order, job->now_ms));
    }
    ATOLL_RETURN_IF_ERROR(claim_output_model(transaction, job->spec.output_model));
    ATOLL_RETURN_IF_ERROR(apply_decision(transaction, topics, *job, decision));
    return advance_job(transaction, topics, id);
}

}  // namespace

Status resume_job(pg::Transaction& transaction, const Topics& topics, const std::string& id, const ResumeOrder& order) {
    ATOLL_TRY(const JobState state, lock_job_state(transaction, id));
    if (state == JobState::kFailed || state == JobState::kPaused)
        ATOLL_RETURN_IF_ERROR(reopen_evaluations(transaction, id));
    if (state == JobState::kFailed) return resume_failed(transaction, topics, id, order);
    ATOLL_TRY(const JobView job, lock_job(transaction, id));
    // It pauses between two rounds where the next one could not begin.
    const bool waits_for_round = job.round.state == RoundState::kClosed && job.round.index < job.spec.rounds;
    if (order.is_empty() && job.spoiled.is_null() && (state != JobState::kPaused || !waits_for_round)) {
        ATOLL_TRY(const JobDecision decision, resume_round(job));
        ATOLL_RETURN_IF_ERROR(set_paused(transaction, id, false));
        return state == JobState::kPaused ? apply_decision(transaction, topics, job, decision) : Status();
    }
    ATOLL_TRY(const std::vector<Round> rounds, all_rounds(transaction, id));
    ATOLL_TRY(const JobDecision decision, resume_job(job, rounds, order));
    ATOLL_RETURN_IF_ERROR(resume(transaction, id));
    ATOLL_RETURN_IF_ERROR(apply_decision(transaction, topics, job, decision));
    return advance_job(transaction, topics, id);
}

Result<std::optional<StoppedJob>> find_stopped_job(pg::Connection& connection, const std::string& id,
                                                   std::optional<std::int64_t> from_round) {
    ATOLL_TRY(const pg::Rows jobs,
              connection.query("SELECT spec->>'output_model' AS model, spec->>'output_owner' AS owner FROM jobs "
                               "WHERE id = $1 AND state IN ('paused', 'failed')",
                               {id}));
    if (jobs.empty()) return std::optional<StoppedJob>();
    StoppedJob job;
    job.output_model = jobs.text(0, "model");
    if (!jobs.is_null(0, "owner")) job.output_owner = jobs.text(0, "owner");
    ATOLL_TRY(
        const pg::Rows versions,
        connection.query("SELECT DISTINCT digest FROM rounds r, unnest(ARRAY[base_digest, version_digest]) digest "
                         "WHERE job_id = $1 AND digest <> '' AND (number = $2 OR number = (SELECT max(number) "
                         "FROM rounds WHERE job_id = $1))",
                         {id, from_round.value_or(-1)}));
    for (int row = 0; row < versions.size(); ++row) job.versions.push_back(versions.text(row, "digest"));
    return std::optional(std::move(job));
}

Status set_paused(pg::Transaction& transaction, const std::string& id, bool paused) {
    ATOLL_TRY(const pg::Rows jobs, transaction.query("SELECT state FROM jobs WHERE id = $1 FOR UPDATE", {id}));
    if (jobs.empty()) return not_found("no job " + id);
    ATOLL_TRY(const JobState state, parse_job_state(jobs.text(0, "state")));
    if (is_finished(state))
        return conflict("the job is " + jobs.text(0, "state") +
                            ": it neither pauses nor goes on; a new one can begin with its newest model",
                        "state");
    if ((state == JobState::kPaused) == paused) return {};
    if (!paused) return resume(transaction, id);
    ATOLL_RETURN_IF_ERROR(transaction.query("UPDATE jobs SET state = 'paused', paused_at = now() WHERE id = $1", {id}));
    return {};
}

}  // namespace atl::dispatch
