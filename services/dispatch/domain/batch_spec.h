#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "services/dispatch/domain/resources.h"
#include "shared/json/json.h"

namespace atl::dispatch {

// What a batch system says of a queue; 0: nothing.
struct QueueLimits {
    std::int64_t nodes_max = 0;  // of one job
    std::int64_t time_max_s = 0;
    std::int64_t time_default_s = 0;  // of a job that says none
    std::int64_t cores_max = 0;       // of a node
    std::int64_t memory_mib_max = 0;  // of a node
    // How the queue was then: its nodes, those among them that take no job by their state, as "drained", and the
    // queue's own state where it is another than "up".
    std::int64_t nodes = 0;
    std::map<std::string, std::int64_t> nodes_away = {};
    std::string state = {};
    std::string found_at = {};  // when a check read them, "2026-03-01T12:00:00Z"; empty: not known
    bool operator==(const QueueLimits&) const = default;
};
json::Json to_json(const QueueLimits& limits);
Result<QueueLimits> parse_queue_limits(const json::Json& value, const std::string& field);
// How many of its nodes take no jobs.
std::int64_t count_away(const QueueLimits& limits);
// "3 of its 4 nodes take no jobs now: 1 down, 2 drained"; empty: all take some.
std::string nodes_away_text(const QueueLimits& limits);
// Why no job in the queue starts, "the partition is down: jobs wait in it and none starts"; empty: nothing is known.
std::string queue_trouble(const QueueLimits& limits);
// "2 nodes of 4 cores and 3.9 GiB, 1:00:00 at most, 0:10:00 where a job says none"
std::string to_text(const QueueLimits& limits);

// A queue that a facility's jobs may ask for, in the words of its batch system, with the limits that are known of it.
// Empty: what the site gives by itself.
struct Queue {
    std::string partition = {};
    std::string account = {};
    std::string qos = {};
    std::string constraint = {};
    std::string reservation = {};
    std::string gpu_request = "--gpus-per-node={gpus}";  // how GPUs are asked for there
    std::string card = {};                               // that its nodes have, as training_memory/cards.h calls it
    std::vector<std::string> extra = {};                 // more options of sbatch, each one word
    std::int64_t nodes_max = 0;                          // 0: not known
    std::int64_t time_max_s = 0;
    QueueLimits found = {};  // by the facility's last check; no part of its record
    bool operator==(const Queue&) const = default;
};

// By this name the limits of a batch system without queues are kept.
inline constexpr const char* kMachine = "machine";
// mpirun starts as many ranks as it is told to; thousands on one machine would take it down.
inline constexpr std::int64_t kRanksPerCoreMax = 16;

enum class BatchKind { kLocal, kSlurm };
const char* to_string(BatchKind kind);  // as in the record: "local", "slurm"

// What tells one batch system from another for those who plan and watch jobs; how it is driven is a BatchSystem's.
struct BatchAbilities {
    const char* name = "";            // for people: "Slurm"
    bool has_queues = false;          // of several nodes, with limits, kept by a scheduler that can be silent
    bool ends_jobs = false;           // of itself: at their time, for another job, with a node that fails
    bool takes_dependencies = false;  // a job may wait in the queue for another one's end
    const char* submitted_file = "";  // in the directory of an attempt that has reached the queue
};
const BatchAbilities& abilities_of(BatchKind kind);

struct BatchSpec {
    BatchKind kind = BatchKind::kLocal;
    std::int64_t slots = 1;                    // local: attempts running at once
    std::map<std::string, Queue> queues = {};  // slurm, one at least; by the names that jobs say
    std::string default_queue = {};            // of a job that names none
    std::string script_template = {};          // slurm, "template": the site's own script around a job; empty: none
    Queue machine = {};                        // local: what is known of it
    bool operator==(const BatchSpec&) const = default;
};

// Batch systems that are not built yet are refused by name.
Result<BatchSpec> parse_batch_spec(const json::Json& value, const std::string& field);
json::Json to_json(const BatchSpec& batch);

// The queue that those resources ask for; of a name that is none of the facility's one that says nothing.
const Queue& queue_of(const BatchSpec& batch, const Resources& resources);

// After so long the batch system ends the job: as it says itself, as the template does but no longer than the queue
// gives, or as the queue is known to; 0: not known.
std::int64_t batch_time_s(const BatchSpec& batch, const Resources& resources);

// Whether the batch system can give it: the queue is one of the facility's own and its limits are kept. The local one
// has one node and no queues, and measures nothing out. Fields are named below `field`. `facility` is its name, for the
// command that reads the limits again.
Status check_resources(const Resources& resources, const BatchSpec& batch, const std::string& field,
                       const std::string& facility = "");

}  // namespace atl::dispatch
