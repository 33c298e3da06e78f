#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/dispatch/domain/job_spec.h"
#include "services/dispatch/domain/task.h"

// The course of a job: pure functions from what the database holds, under the job's lock, to what changes.
//
//   job    running ⇄ paused → completed | failed (→ running, by a person) | cancelled
//   round  training → aggregating → closed (or failed, or cancelled where the job goes back to an earlier model)
//
// Round 0 stands for the base model: it is closed from the start and only evaluated. Evaluations run beside the next
// round's training; a failed evaluation is shown and stops nothing, one that is late is cancelled. While a job is
// paused nothing is late.
namespace atl::dispatch {

// An update that the aggregation left out, as it cannot be used.
struct Refusal {
    std::string task;
    std::string reason;
    bool is_sites_fault = true;  // false: the store has lost or damaged it, which is not held against its site
};
// From the aggregation's answer or the database; an error names the field `path`.
Result<std::vector<Refusal>> parse_refused(const json::Json& list, const std::string& path);

struct Round {
    std::int64_t number = 0;
    std::int64_t index = 0;   // which of the job's rounds it stands for: less than its number where the job went back
    std::int64_t parent = 0;  // the round that made its base
    RoundState state = RoundState::kTraining;
    std::string base;
    std::string version;  // once closed
    bool evaluated = false;
    std::string error;
    std::optional<std::int64_t> deadline_ms;  // of its training; nearer once the quorum is in
    std::optional<std::int64_t> closed_ms;
    std::optional<std::int64_t> evaluate_by_ms;  // once closed: evaluations are waited for until then
    std::optional<std::int64_t> ask_again_ms;    // while aggregating: when its closing is told once more
    std::vector<std::string> accepted;           // once training closed: the tasks whose updates count
    std::vector<Refusal> refused;                // those that turned out not to; no longer accepted
    // Once closed, of each accepted update: [{task, facility, share, norm, cosine, counted, opposed_rounds}], norm to
    // counted where the aggregation measured them, the last where it is kOpposedRounds or more.
    json::Json contributions = json::Json::array();
};

// How long an answer of the aggregation is waited for before atoll.round.closed.v1 is sent again. Both sides count a
// round once, so asking too often costs nothing but a message.
constexpr std::int64_t kAggregationPatience_s = 10 * 60;

// A site whose update has a cosine of kOpposed or less to the mean of the others in so many rounds after one another is
// pointed out: it may undo what they learn. Nothing is taken from its weight, as its data may be of another kind. Where
// more than half of the updates point away from the others, who of them is the odd one cannot be told, and none is.
constexpr double kOpposed = -0.5;
constexpr std::int64_t kOpposedRounds = 3;

// What a job's facility has had refused, by the store or the aggregation. With quarantine_after refusals it is in
// quarantine: it trains in no later round.
struct Record {
    std::int64_t refusals = 0;
    std::string reason;        // of the newest
    bool is_left_out = false;  // the job was resumed without it
    // The newest round, among those that the job's model comes from, whose model its update is in: what a site keeps
    // from round to round goes on from there. 0: none.
    std::int64_t counted_round = 0;
    // The least perplexity that its evaluations have found since somebody last said how the job goes on, of the model
    // of best_round. 0: none yet.
    double best_perplexity = 0;
    std::int64_t best_round = 0;
    // How many rounds in a row, up to the newest that its update counted in, that update pointed away from the others'.
    std::int64_t opposed_rounds = 0;

    bool operator==(const Record&) const = default;
};

struct JobView {
    std::int64_t now_ms = 0;  // when it was read, by the database's clock
    std::string id;
    JobSpec spec;
    JobState state = JobState::kRunning;
    std::string base;                       // the base model's digest
    Round round;                            // the current one
    std::vector<Round> closed;              // earlier or equal rounds whose evaluations are not all finished
    std::vector<Task> tasks;                // all that are not finished, and every one of those rounds
    std::map<std::string, Record> records;  // by facility; without one nothing was refused
    json::Json spoiled;                     // what model_guard.h says of a model because of which it pauses, or null
    std::int64_t judged_until = 0;          // the newest round whose model is not judged again
    // Facilities that jobs of whoever submitted it may not use any more, each with that as a reason.
    std::map<std::string, std::string> disallowed;
    std::map<std::string, std::int64_t> waiting_since_ms;  // facilities that gave no answer when last asked
};

bool is_quarantined(const JobView& job, const std::string& facility);
// Whether the next round has no training there.
bool is_passed_over(const JobView& job, const std::string& facility);

// The training tasks whose updates make the current round, once its training has closed, in the order of the
// participants.
std::vector<const Task*> accepted_updates(const JobView& job);
// What the aggregation makes that round of: the data of atoll.round.closed.v1.
json::Json closed_round(const JobView& job);
// Of the evaluations of a round that none is waited for any more, those that gave no perplexity: {"count", "of",
// "reason"}, the first reason that is known, and "partly", those among them that gave one for other models. One that
// was tried again counts once. null: each gave one. `reasons`: of tasks that are just being cancelled.
json::Json failed_evaluations(const std::vector<const Task*>& evaluations,
                              const std::map<std::string, std::string>& reasons = {});

// How many of the tasks that a round waits for may end, and how many of them without success, before the job must be
// looked at again. So the end of a task costs the same however many participants there are.
struct QuietEnds {
    std::int64_t ends = 0;
    std::int64_t losses = 0;
};

struct JobDecision {
    std::optional<JobState> job_state;
    std::optional<json::Json> spoiled;  // set, or taken back by null
    std::optional<std::int64_t> judged_until;
    std::string job_error;
    std::vector<Round> rounds;              // new or changed
    std::map<std::string, Record> records;  // new or changed
    std::vector<Task> new_tasks;
    std::vector<std::string> cancelled_tasks;
    std::map<std::string, std::string> reasons;  // why some of them are, by task
    std::vector<DomainEvent> events;
    std::vector<DomainEvent> repeats;              // sent before, to be sent once more: no news of the job
    std::map<std::int64_t, QuietEnds> quiet_ends;  // by round, of those that stay as they are
};

struct AggregationResult {
    std::int64_t round = 0;
    std::string version;  // empty: it failed
    std::string error;
    std::vector<Refusal> refused = {};
    json::Json contributions = json::Json::array();  // as the store's version of it has them
};

// A job's first decision: rounds 0 and 1.
JobDecision submit_job(const JobView& job, std::int64_t now_ms);
// After a task of the job finished that was not a quiet end, a deadline passed, or a facility gave no answer.
JobDecision advance_job(const JobView& job, std::int64_t now_ms);
// A second result for the same round, or one for a finished job, changes nothing.
JobDecision apply_aggregation(const JobView& job, const AggregationResult& result, std::int64_t now_ms);
JobDecision cancel_job(const JobView& job);

// How a paused job goes on.
struct ResumeOrder {
    bool accepts = false;                         // its model is good, whatever the evaluations say
    std::set<std::string> without = {};           // facilities that train no more for it
    std::optional<std::int64_t> from_round = {};  // whose model it goes on from
    bool is_empty() const { return !accepts && without.empty() && !from_round; }
};
// `rounds`: all of the job. kConflict: it is not paused, or paused for a spoiled model and the order says nothing of
// it, or too few would be left; kInvalidArgument naming the member that is wrong.
Result<JobDecision> resume_job(const JobView& job, const std::vector<Round>& rounds, const ResumeOrder& order);

// A paused job whose round goes on as it was: what is under way at facilities that are not for it any more is ended.
// kConflict: without these too few updates would be left.
Result<JobDecision> resume_round(const JobView& job);

// Forgets what a facility has had refused: it trains again from the next round on. Nothing changes where nothing was.
JobDecision readmit(const JobView& job, const std::string& facility);
// A failed job trains the round that it failed in again, from the model of the round before: what was handed in counts,
// who failed or was cut short begins anew. kConflict: it has not failed, something of it still ends at its sites, or it
// would fail in the same way. kInvalidArgument: the order does more than leave participants out.
Result<JobDecision> resume_failed_job(const JobView& job, const ResumeOrder& order, std::int64_t now_ms);
// After an attempt of a facility has ended with an update that was refused.
JobDecision count_refused_update(JobView job, const std::string& facility, const std::string& reason);

}  // namespace atl::dispatch
