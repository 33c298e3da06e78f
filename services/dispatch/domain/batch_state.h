#pragma once

#include <string>

namespace atl::dispatch {

enum class BatchState {
    kQueued,
    kRunning,
    kEnded,
    kUnknownToQueue,  // a good answer that does not know the job: it ended long ago, or was never there
};

// How a job ended, by its batch system's word.
enum class BatchEnd {
    kUnknown,
    kCompleted,
    kFailed,
    kOutOfMemory,
    kTimeLimit,
    kNodeFailure,
    kPreempted,
    kCancelled,  // by the site, or by someone with the account's rights
};

// The beginning of the local batch system's word for a job whose slot another has, an ordinary one as Slurm's Priority.
constexpr const char* kTurnNotCome = "its turn has not come";

// What a batch system answers about a job.
struct BatchAnswer {
    BatchState state = BatchState::kUnknownToQueue;
    BatchEnd end = BatchEnd::kUnknown;  // of an ended job
    std::string reason;                 // its own words: why the job waits, or how it ended; printable, short
    bool is_suspended = false;          // of a running job, which the site has stopped for a while
};

}  // namespace atl::dispatch
