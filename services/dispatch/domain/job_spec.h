#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/resources.h"
#include "shared/aggregate/strategy.h"
#include "shared/json/json.h"

namespace atl::dispatch {

// A dataset as it lies at one facility. `version` 0 means the newest there until the catalog has resolved it; `path` is
// relative to the facility's work directory and empty until then, as are the numbers that an update is checked against.
// A job has all that it needs of its data from its submission on, so that whoever removes a dataset hurts none.
struct DatasetCopy {
    std::string facility;
    std::string dataset;
    std::int64_t version = 0;
    std::string path = {};
    std::int64_t rows = 0;  // of the training split
    std::int64_t seq_len = 0;
    std::int64_t validation_tokens = 0;  // the most that an evaluation can see; 0: not known
    std::string fingerprint = {};        // of both splits; empty: not known
};

// An event about all of them has some 300 kB; Kafka takes 1 MB.
constexpr std::size_t kParticipantsMax = 1000;
// Of a round: each of its models at each place. With "models": "all" that grows with the square of the participants.
constexpr std::size_t kEvaluationsMax = 20'000;

struct Participant {
    DatasetCopy data;
    Resources resources = {};  // of each training
    json::Json training;       // overrides of the job's settings, null if none
};

// How the rate that a job's training names goes on from round to round. On data that differs between the facilities
// FedAvg with a constant rate ends beside the optimum, however many rounds it gets: Li et al., "On the Convergence of
// FedAvg on Non-IID Data", ICLR 2020.
enum class RoundSchedule {
    kConstant,  // each round as the first
    kLinear,    // 1 in the first round, falling towards 0 after the last
    kCosine,
    kByStep,  // training.schedule and its warm-up go over the steps of all rounds
};
const char* to_string(RoundSchedule schedule);
// What the rate is multiplied by in round 1 … `rounds`; 1 with kByStep, where the trainer knows.
double rate_factor(RoundSchedule schedule, std::int64_t round, std::int64_t rounds);

constexpr std::int64_t kRoundDeadline_s = 7 * 24 * 60 * 60;
constexpr std::int64_t kGrace_s = 30 * 60;

struct JobSpec {
    std::string name;
    std::string model;          // base model
    std::string model_version;  // digest or tag as asked for
    // The digest of the model that the job's adapters are trained on: each of its versions is such an adapter. Empty:
    // it trains whole models. Filled in at its submission.
    std::string adapter_of = {};
    std::string output_model;
    // Whose that was when the job was submitted; its updates go into no other of that name. Unset: not known.
    std::optional<std::string> output_owner = {};
    std::vector<Participant> participants;
    std::int64_t rounds = 1;
    aggregate::StrategySpec strategy;
    json::Json training;  // keys of run.json
    RoundSchedule lr_round_schedule = RoundSchedule::kConstant;
    std::vector<DatasetCopy> evaluation_copies;
    // "models": "all": every facility that evaluates gets every other's update. False: only the base and the global
    // models, so that an update stays between its facility and the coordinator.
    bool evaluate_updates = false;
    // "pause_when_worse": the job pauses where a round has spoiled its model. Unset: where every participant evaluates.
    std::optional<bool> pause_when_worse;
    // "val_samples": rows of each validation split that are evaluated on, the first ones. 0: all. Also what trainings
    // with eval_every validate on, unless their settings have a number of their own.
    std::int64_t validation_samples = 0;
    std::int64_t attempts_max = 3;
    // How long a round trains, and after its end is evaluated, at most. Queues can be long, but a dead site is for
    // ever.
    std::int64_t round_deadline_s = kRoundDeadline_s;
    std::optional<std::int64_t> quorum;  // updates that are enough for a round; unset: all
    // How long a round waits for the others once its quorum is in, and the job, when it has trained, for evaluations
    // once half of the last round's are there. A site that has been silent for so long is not waited for at all then.
    std::int64_t grace_s = kGrace_s;
    std::int64_t evaluation_grace_s = kGrace_s;
    std::int64_t quarantine_after = 2;  // refused updates of a facility, which trains no more for this job then

    std::int64_t updates_needed() const { return quorum.value_or(static_cast<std::int64_t>(participants.size())); }
    bool pauses_when_worse() const;
};

// Where a job comes from: a request, or what to_json() made of one and the database kept, versions and paths filled in.
// The trainer's settings of a participant in round 1 … `rounds`.
json::Json settings_of(const JobSpec& spec, const Participant& participant, std::int64_t round = 1);

enum class JobSource { kRequest, kDatabase };

// Fields are checked one by one, the world (facilities, datasets, models) is the catalog's to check.
Result<JobSpec> parse_job_spec(const json::Json& value, JobSource source = JobSource::kRequest);

json::Json to_json(const JobSpec& spec);

}  // namespace atl::dispatch
