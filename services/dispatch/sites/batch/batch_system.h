#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/dispatch/domain/batch_state.h"
#include "services/dispatch/domain/facility.h"
#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// One attempt as a batch system knows it. Its name there is never used twice.
struct BatchJobRef {
    std::string name;       // "atoll-<task>-<attempt>", charset [A-Za-z0-9._-]
    std::string directory;  // at the site; holds job.sh, jobid, stdout.jsonl, stderr.log, exit.json
};

struct BatchSubmission {
    BatchJobRef job;
    std::string job_script;  // becomes job.sh; writes `started` and exit.json itself
};

// A site's scheduler, driven by shell scripts through a transport. Thread-safe. Every call is safe to repeat; every
// kUnavailable means "not known", never "no".
class BatchSystem {
  public:
    virtual ~BatchSystem() = default;

    // Puts the job in the queue unless one of that name was put there before; returns its id either way. This is the
    // promise that an attempt reaches a queue at most once: lock, look by name, submit, record, all at the site.
    // kConflict: it was cancelled before.
    virtual Result<std::string> submit(Transport& transport, const BatchSubmission& submission) = 0;

    // One state a job, in order, by one query to the scheduler.
    virtual Result<std::vector<BatchState>> poll(Transport& transport, const std::vector<BatchJobRef>& jobs) = 0;

    // Ends the job wherever it stands and makes a later submission of that name impossible. Ok: it is gone.
    virtual Status cancel(Transport& transport, const BatchJobRef& job) = 0;
};

// Processes of the login machine itself, at most `slots` jobs at once, the others queue.
std::unique_ptr<BatchSystem> make_local_batch(std::int64_t slots, std::string work_dir);

std::unique_ptr<BatchSystem> make_batch_system(const Facility& facility);

}  // namespace atl::dispatch
