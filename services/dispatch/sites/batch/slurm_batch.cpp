#include <algorithm>
#include <map>

#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/batch/batch_system.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kReasonBytesMax = 200;

// squeue(1), "JOB STATE CODES"; sacct(1) says the same words, "CANCELLED by UID" among them. A state of a later release
// is one of a job that has not ended.
BatchAnswer to_answer(std::string_view state, std::string_view reason) {
    static const std::map<std::string_view, BatchEnd> kEnds = {
        {"COMPLETED", BatchEnd::kCompleted},       {"FAILED", BatchEnd::kFailed},
        {"OUT_OF_MEMORY", BatchEnd::kOutOfMemory}, {"TIMEOUT", BatchEnd::kTimeLimit},
        {"DEADLINE", BatchEnd::kTimeLimit},        {"NODE_FAIL", BatchEnd::kNodeFailure},
        {"BOOT_FAIL", BatchEnd::kNodeFailure},     {"PREEMPTED", BatchEnd::kPreempted},
        {"CANCELLED", BatchEnd::kCancelled},       {"REVOKED", BatchEnd::kCancelled},
    };
    BatchAnswer answer;
    const std::string why = shorten(json::printable(std::string(reason)), kReasonBytesMax);
    if (const auto end = kEnds.find(state.substr(0, state.find(' '))); end != kEnds.end()) {
        answer.state = BatchState::kEnded;
        answer.end = end->second;
        answer.reason = json::printable(std::string(state)) + (why.empty() || why == "None" ? "" : ": " + why);
        return answer;
    }
    const bool waits = state == "PENDING" || state.starts_with("REQUEUE") || state == "SPECIAL_EXIT";
    answer.state = waits ? BatchState::kQueued : BatchState::kRunning;
    if (why != "None") answer.reason = why;
    return answer;
}

class SlurmBatch : public BatchSystem {
  public:
    std::string functions() const override { return std::string(kSitesBatchScriptsSlurmSh); }

    // squeue's word is newer than sacct's; of two jobs of one name, which a claim lets train but one of, the one that
    // has not ended counts.
    Result<std::vector<BatchAnswer>> parse(std::string_view text, const std::vector<BatchJobRef>& jobs) const override {
        std::map<std::string_view, BatchAnswer> known;
        bool is_accounting = false;
        bool is_whole = false;
        for (const std::string_view line : split(text, '\n')) {
            if (line == "sacct") is_accounting = true;
            if (line == "end") is_whole = true;
            const auto fields = split(line, '|');
            if (fields.size() < 4) continue;
            if (is_accounting && known.contains(fields[0])) continue;
            const auto reason_at = static_cast<std::size_t>(fields[3].data() - line.data());
            const BatchAnswer answer = to_answer(fields[2], line.substr(reason_at));
            BatchAnswer& kept = known[fields[0]];
            if (kept.state == BatchState::kUnknownToQueue || kept.state == BatchState::kEnded) kept = answer;
        }
        if (!is_whole) return unavailable("Slurm's answer is incomplete");
        std::vector<BatchAnswer> answers;
        for (const auto& job : jobs) answers.push_back(known[job.name]);
        return answers;
    }
};

}  // namespace

std::unique_ptr<BatchSystem> make_slurm_batch() {
    return std::make_unique<SlurmBatch>();
}

}  // namespace atl::dispatch
