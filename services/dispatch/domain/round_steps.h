#pragma once

#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/round_machine.h"

// What the decisions about a job are made of, for the files that make them. Each adds to the decision.
namespace atl::dispatch {

// How often a round's trainings and evaluations are begun by going on again and again.
inline constexpr std::size_t kTriesMax = 50;

void add_event(JobDecision& decision, const JobView& job, const char* type, json::Json data = json::Json::object());

// Opens the round of that number, which begins with the model of the round `from` and stands for the one after it.
void open_round(JobDecision& decision, const JobView& job, std::int64_t number, const Round& from, std::int64_t now_ms);

// The training of the participant at that place.
Task training_task(const JobView& job, std::size_t place, const Round& round);
void tell_opened(JobDecision& decision, const JobView& job, const Round& round);

std::vector<const Task*> round_tasks(const JobView& job, TaskKind kind, std::int64_t round);
// The training tasks of the current round that have handed in an update, in the order of the participants.
std::vector<const Task*> handed_in_updates(const JobView& job);

struct TaskCount {
    std::int64_t done = 0;
    std::int64_t unfinished = 0;
    std::int64_t silent = 0;  // unfinished at a site that gives no answer
};
TaskCount count_tasks(const JobView& job, const std::vector<const Task*>& tasks);
// Whether nothing is left to train.
inline bool is_last_round_closed(const JobView& job) {
    return job.round.state == RoundState::kClosed && job.round.index == job.spec.rounds;
}
// Says in the decision which rounds of the job have how many tasks whose ends change nothing.
void foresee_quiet_ends(JobDecision& decision, const JobView& job);

// How many updates the current round needs.
std::int64_t needed_by_round(const JobView& job);

// Round::contributions of the current round, by the record that the store has of the version that was made of it.
json::Json contributions_of(const JobView& job, const json::Json& recorded);

// Cancels the current round and its trainings, unless it has ended.
void cancel_round(JobDecision& decision, const JobView& job, const std::string& why);

// kInvalidArgument: the order leaves out a facility that is no participant.
// kConflict: the job has been resumed so often that its rounds are far more than it asked for.
Status check_rounds_made(const JobView& job);
// kConflict: something that the job had begun is under way still, but for cleanings that have not begun.
Status check_quiet(const JobView& job);
Status check_left_out(const JobView& job, const ResumeOrder& order);
// Notes that those facilities train no more for the job.
void leave_out(JobDecision& decision, JobView& job, const ResumeOrder& order, std::int64_t from_round);

// Of the evaluations of one round those that failed or were cut short, one for each copy of a dataset that has no other
// evaluation which gave a result or may still give one.
std::vector<const Task*> lost_evaluations(const std::vector<const Task*>& evaluations);
// Evaluates the models of a closed round once more where that failed or was cut short before; the round waits for it.
// `job` has all evaluations of the round.
void evaluate_again(JobDecision& decision, const JobView& job, Round round, std::int64_t now_ms);

// "1 update", "3 updates".
std::string updates_text(std::int64_t count);

// Why no further round can get the updates that it needs; nothing: it can.
std::optional<std::string> lack_of_participants(const JobView& job);
// Whether the participants that are lacking are those whose facilities are not for the job just now.
bool may_be_allowed_again(JobView job);
// Who trained in the current round and is not asked in the next one, as its facility is not for the job any more.
void tell_passed_over(JobDecision& decision, const JobView& job, std::int64_t next_round);
// Where its models are evaluated.
std::vector<DatasetCopy> evaluation_copies(const JobView& job);

}  // namespace atl::dispatch
