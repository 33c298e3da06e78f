#include <sstream>

#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/batch/batch_system.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kIdBytesMax = 200;

Error refused(const char* what, const CommandResult& result) {
    return unavailable(std::string(what) + " answered exit status " + std::to_string(result.exit_code) + ": " +
                       json::printable(result.err.substr(0, 500)));
}

class LocalBatch : public BatchSystem {
  public:
    LocalBatch(std::int64_t slots, std::string work_dir) : slots_(slots), locks_(std::move(work_dir) + "/slots") {}

    Result<std::string> submit(Transport& transport, const BatchSubmission& submission) override {
        const auto& job = submission.job;
        ATOLL_TRY(const CommandResult result, transport.run({std::string(kSitesBatchScriptsLocalSubmitSh),
                                                             {job.directory, job.name, std::to_string(slots_), locks_,
                                                              std::to_string(submission.job_script.size()),
                                                              std::string(kSitesBatchScriptsLocalRunnerSh)},
                                                             submission.job_script}));
        if (result.exit_code != 0) return refused("the local batch system's submission", result);
        std::string id = json::printable(result.out.substr(0, result.out.find_first_of(" \n")).substr(0, kIdBytesMax));
        if (id == "cancelled") return conflict(job.name + " was cancelled before it was submitted");
        if (id.empty()) return unavailable("the local batch system gave no job id");
        return id;
    }

    Result<std::vector<BatchState>> poll(Transport& transport, const std::vector<BatchJobRef>& jobs) override {
        std::vector<std::string> directories;
        for (const auto& job : jobs) directories.push_back(job.directory);
        ATOLL_TRY(const CommandResult result,
                  transport.run({std::string(kSitesBatchScriptsLocalPollSh), directories, {}}));
        if (result.exit_code != 0) return refused("the local batch system's poll", result);
        std::istringstream lines(result.out);
        std::vector<BatchState> states;
        for (std::string line; std::getline(lines, line);) {
            if (line == "queued") states.push_back(BatchState::kQueued);
            if (line == "running") states.push_back(BatchState::kRunning);
            if (line == "absent") states.push_back(BatchState::kUnknownToQueue);
        }
        if (states.size() != jobs.size()) return unavailable("the local batch system's answer is incomplete");
        return states;
    }

    Status cancel(Transport& transport, const BatchJobRef& job) override {
        ATOLL_TRY(const CommandResult result,
                  transport.run({std::string(kSitesBatchScriptsLocalCancelSh), {job.directory, job.name}, {}}));
        return result.exit_code == 0 ? Status() : Status(refused("the local batch system's cancel", result));
    }

  private:
    std::int64_t slots_;
    std::string locks_;
};

}  // namespace

std::unique_ptr<BatchSystem> make_local_batch(std::int64_t slots, std::string work_dir) {
    return std::make_unique<LocalBatch>(slots, std::move(work_dir));
}

}  // namespace atl::dispatch
