#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/domain/task_params.h"
#include "services/dispatch/domain/waiting.h"
#include "shared/json/json.h"

namespace atl::dispatch {

enum class TaskState { kPending, kRunning, kDone, kFailed, kCancelled };
enum class Step { kStaging, kSubmitting, kQueued, kRunning, kCollecting, kDone, kFailed, kInterrupted, kCancelled };
enum class JobState { kRunning, kPaused, kCompleted, kFailed, kCancelled };
enum class RoundState { kTraining, kAggregating, kClosed, kFailed, kCancelled };

// The words of the API and the database. parse_* of a word that this release does not know is kInternal.
const char* to_string(TaskKind kind);
const char* to_string(TaskState state);
const char* to_string(Step step);
const char* to_string(JobState state);
const char* to_string(RoundState state);
Result<TaskKind> parse_task_kind(const std::string& word);
Result<TaskState> parse_task_state(const std::string& word);
Result<Step> parse_step(const std::string& word);
Result<JobState> parse_job_state(const std::string& word);
Result<RoundState> parse_round_state(const std::string& word);

bool is_finished(TaskState state);
bool is_finished(JobState state);
bool is_finished(Step step);

// How long a token of an attempt lives, if the attempt does not end before. A transfer that lasts longer gets another.
inline constexpr std::chrono::hours kAttemptTokenLife{2};

inline constexpr const char* kAskedFor = "asked for";  // kept before anything is submitted

// Whether a step takes time that is counted: moving data, waiting in the queue, running.
bool is_phase(Step step);
// Whether it moves data between coordinator and site.
bool is_transfer(Step step);
// Whether an attempt that ends so has come to nothing.
bool is_lost(Step step);

// A phase that an attempt has left. `ended_ms` is 0 where nobody saw when.
struct PastPhase {
    Step step = Step::kStaging;
    std::int64_t began_ms = 0;
    std::int64_t ended_ms = 0;
    std::int64_t bytes = 0;  // that it moved; 0: none, or not known

    bool operator==(const PastPhase&) const = default;
};

// One try of a task: at most one batch submission, under the name batch_job_name().
struct Attempt {
    std::int64_t number = 1;
    std::int64_t failed_before = 0;  // attempts of the task that failed; one that ran out of time did not
    Step step = Step::kStaging;
    std::string batch_id;
    std::optional<std::int64_t> exit_code;
    std::string error;
    // Everything below is the column `progress`.
    std::int64_t step_failures = 0;       // answers in a row that said no or said nothing
    std::int64_t log_offset = 0;          // bytes of stdout.jsonl read
    std::int64_t log_lines = 0;           // lines among them
    std::int64_t partial_reads = 0;       // in a row that did not come to the log's end
    std::optional<SummaryLine> summary;   // train
    std::vector<EvaluationLine> results;  // evaluate: in the order of the models
    std::optional<StepLine> last_step;    // train: the newest
    std::int64_t points_told = 0;         // train: of steps, by events of all attempts
    std::int64_t first_step = 0;          // the furthest that an attempt of the task began at; 0: none made one
    std::int64_t saved_step = 0;          // the furthest that an attempt of the task stopped at with its state saved
    std::int64_t begun_at_step = 0;       // train: the first step that this attempt made; 0: none yet
    std::int64_t interruptions = 0;       // of the task's batch jobs since one began further on than those before it
    std::int64_t queue_misses = 0;        // answers in a row that did not know the batch job
    std::int64_t missing_since_ms = 0;    // the first of them
    std::int64_t batch_asked_ms = 0;      // when the batch system was asked last
    std::int64_t looked_ms = 0;           // when the look was asked for that was read last
    std::int64_t since_ms = 0;            // when it was submitted, was seen to run or began to move data
    std::vector<PastPhase> phases;        // before the one that it is in
    std::int64_t bytes_done = 0;          // of what staging or collecting moves now, of
    std::int64_t bytes_total = 0;         // that many; 0: not known
    std::int64_t paced_from_step = 0;     // train: the newest step that the first look at one saw,
    std::int64_t paced_from_ms = 0;       // and when that look was asked for
    std::int64_t not_ready_since_ms = 0;  // its site has had no room or node since; 0: it has
    std::int64_t no_queue_since_ms = 0;   // its site has taken no job into its queue since; 0: it does
    // The id of the next attempt's batch job, which waits in the queue for the end of this one's; kAskedFor before that
    // is known; empty: there is none.
    std::string continuation;
    std::optional<Waiting> continuation_waiting;  // it could not be put into the queue
    std::string queue_reason;  // why the batch job waits, in the batch system's words; empty: it does not
    std::int64_t queue_reason_since_ms = 0;
    std::int64_t log_tries =
        0;  // how often its site may still be asked for its logs; 0: they are there, or there are none
    std::optional<Waiting> waiting;  // its step could not be done when it was last tried, which is no failure
};

// The column, and the attempt's part that comes from it; kInvalidArgument names the member that is damaged.
json::Json progress_json(const Attempt& attempt);
Status read_progress(const json::Json& progress, Attempt& attempt);

struct Task {
    std::string id;
    std::string job;          // empty for a preparation's
    std::string preparation;  // empty for a job's
    std::int64_t round = 0;
    std::string facility;
    TaskParams params;   // empty where the row's cannot be read
    std::string damage;  // why they, or another part of its row, cannot; the task's next step fails it
    TaskState state = TaskState::kPending;
    std::int64_t attempts_max = 3;
    bool cancel_requested = false;
    std::string error;
    json::Json result;               // of a done task
    std::optional<Attempt> attempt;  // the newest

    TaskKind kind() const { return static_cast<TaskKind>(params.index()); }
};

// Whether the result of a training that is done says what the round needs of it: version, samples, tokens.
Status check_training_result(const json::Json& result);

// Whether something of the task's attempt may be running at its site.
bool may_run(const Task& task);

// Removes what the tasks of a job or a preparation left at a facility, but for their logs.
Task cleaning_task(const std::string& facility);

// "atoll-<task>-<attempt>": the batch job's name at the site.
std::string batch_job_name(const Task& task);

// Something that happened to a job, for its event list and for Kafka.
struct DomainEvent {
    std::string type;
    json::Json data;
};

}  // namespace atl::dispatch
