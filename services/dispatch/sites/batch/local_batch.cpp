#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/batch/batch_system.h"
#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

class LocalBatch : public BatchSystem {
  public:
    LocalBatch(std::int64_t slots, const std::string& work_dir)
        : slots_(slots),
          functions_("slots=" + std::to_string(slots) + " locks=" + shell_quote(work_dir + "/slots") +
                     " runner=" + shell_quote(std::string(kSitesBatchScriptsLocalRunnerSh)) + "\n" +
                     std::string(kSitesBatchScriptsLocalSh)) {}

    std::string script(const BatchJobRef&, const Resources&, const std::string& body) const override {
        return "#!/bin/sh\n" + body;
    }

    std::string launcher() const override { return "mpirun"; }

    std::string functions() const override { return functions_; }

    Result<std::vector<BatchAnswer>> parse(std::string_view text, const std::vector<BatchJobRef>& jobs) const override {
        std::vector<BatchAnswer> answers;
        for (const std::string_view line : split(text, '\n')) {
            if (line == "queued") answers.push_back({BatchState::kQueued, {}, {}});
            if (line == "waiting") answers.push_back({BatchState::kQueued, {}, wait_reason()});
            if (line == "running") answers.push_back({BatchState::kRunning, {}, {}});
            if (line.starts_with("elsewhere "))  // what it does there is known by its files alone
                answers.push_back({BatchState::kRunning, {}, "on " + json::printable(std::string(line.substr(10)))});
            if (line == "absent") answers.push_back({BatchState::kUnknownToQueue, {}, {}});
        }
        if (answers.size() != jobs.size()) return unavailable("the local batch system's answer is incomplete");
        return answers;
    }

    // "CORES MIB"
    std::map<std::string, Result<QueueLimits>> parse_limits(std::string_view text) const override {
        const auto fields = split(text.substr(0, text.find('\n')), ' ');
        if (fields.size() != 2 || read_count(fields[0]) < 1 || read_count(fields[1]) < 1) return {};
        QueueLimits found;
        found.nodes = found.nodes_max = 1;
        found.cores_max = read_count(fields[0]);
        found.memory_mib_max = read_count(fields[1]);
        return {{kMachine, found}};
    }

  private:
    std::string wait_reason() const {
        return std::string(kTurnNotCome) + ": the facility runs " + std::to_string(slots_) +
               (slots_ == 1 ? " job at once" : " jobs at once");
    }

    std::int64_t slots_;
    std::string functions_;
};

}  // namespace

std::unique_ptr<BatchSystem> make_local_batch(std::int64_t slots, const std::string& work_dir) {
    return std::make_unique<LocalBatch>(slots, work_dir);
}

}  // namespace atl::dispatch
