#pragma once

namespace atl::dispatch {

// What a batch system answers about a job.
enum class BatchState {
    kQueued,
    kRunning,
    kUnknownToQueue,  // a good answer that does not know the job: it ended, or was never there
};

}  // namespace atl::dispatch
