#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/dispatch/domain/batch_state.h"
#include "services/dispatch/domain/facility.h"

namespace atl::dispatch {

// One attempt as a batch system knows it. Its name there is never used twice.
struct BatchJobRef {
    std::string name;       // "atoll-<task>-<attempt>", charset [A-Za-z0-9._-]
    std::string directory;  // at the site; holds job.sh, jobid, stdout.jsonl, stderr.log, end.json
    // The id of a job that has to end before it may start; empty: none. The local batch system does not know that.
    std::string after = {};
    std::string exports = {};  // shell lines that export its environment, for a site's own script
};

// How one batch system is driven. Pure: it says what runs at the site and reads what came back. The scripts around it
// (scripts/submit.sh, cancel.sh) are the same for all, and promise that an attempt reaches a queue at most once: look
// by name, submit, record, all at the site.
class BatchSystem {
  public:
    virtual ~BatchSystem() = default;

    // The whole file for its queue: what asks for the resources, the site's own lines, and `body`, shell text that says
    // how it ends by its last command.
    virtual std::string script(const BatchJobRef& job, const Resources& resources, const std::string& body) const = 0;
    // What starts the ranks of a job there where the facility does not say: "mpirun" on one machine, or shell text.
    virtual std::string launcher() const = 0;

    // POSIX shell functions; each returns 75 where it could not find out. The first two are called in the job's
    // directory.
    //   queue_find NAME             prints the id of the job of that name, nothing if there is none
    //   queue_put FILE NAME         puts FILE into the queue, prints its id; 65: it can never run;
    //                               78: the queue's settings are refused; reason on stderr for both
    //   queue_ask NAME DIRECTORY …  prints what parse() reads
    //   queue_drop NAME             ends the job; 0: no process of it lives
    //   queue_limits                prints what parse_limits() reads
    //   queue_machines PARTITION …  prints the machines (uname -m) of their nodes, a line each;
    //                               without a name those of all nodes
    //   queue_probe                 prints QUEUE and the reason, a line for each queue of the record whose settings are
    //                               refused, as far as that is told without a submission
    virtual std::string functions() const = 0;

    // One answer a job, in order, from what queue_ask printed. kUnavailable: it is not whole.
    virtual Result<std::vector<BatchAnswer>> parse(std::string_view text,
                                                   const std::vector<BatchJobRef>& jobs) const = 0;

    // What the batch system says of the facility's queues, by their names in its record; kNotFound: it has no such one.
    // One without queues says how large its machine is, under kMachine.
    virtual std::map<std::string, Result<QueueLimits>> parse_limits(std::string_view text) const = 0;
};

// Processes of the login machine itself, at most `slots` jobs at once, the others queue.
std::unique_ptr<BatchSystem> make_local_batch(std::int64_t slots, const std::string& work_dir);
std::unique_ptr<BatchSystem> make_slurm_batch(const BatchSpec& spec = {});

std::unique_ptr<BatchSystem> make_batch_system(const Facility& facility);

// The number that a field of their answers begins with; 0: none.
std::int64_t read_count(std::string_view text);

}  // namespace atl::dispatch
