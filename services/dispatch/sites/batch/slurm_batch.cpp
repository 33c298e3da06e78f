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

// So long before the end of its time a job is told to save and end: what saving may take, but a fifth of the time at
// most.
std::int64_t notice_s(std::int64_t time_s) {
    return std::min<std::int64_t>(300, std::max<std::int64_t>(1, time_s / 5));
}

// sbatch(1). What is not said is the site's own.
std::string render_header(const BatchJobRef& job, const Resources& resources, const Queue& queue) {
    std::string lines;
    const auto add = [&](const std::string& option) { lines += "#SBATCH " + option + "\n"; };
    const auto add_word = [&](const char* option, const std::string& word) {
        if (!word.empty()) add(option + word);
    };
    const auto add_count = [&](const char* option, std::int64_t count, const char* unit = "") {
        if (count > 0) add(option + std::to_string(count) + unit);
    };
    add("--job-name=" + job.name);
    add("--output=batch.log");
    add_word("--partition=", queue.partition);
    add_word("--account=", queue.account);
    add_word("--qos=", queue.qos);
    add_word("--constraint=", queue.constraint);
    add_word("--reservation=", queue.reservation);
    add_count("--nodes=", resources.nodes);
    add_count("--ntasks-per-node=", resources.tasks_per_node);
    add_count("--cpus-per-task=", resources.cores_per_task);
    if (resources.gpus_per_node > 0) {
        std::string request = queue.gpu_request;
        const std::string placeholder = "{gpus}";
        add(request.replace(request.find(placeholder), placeholder.size(), std::to_string(resources.gpus_per_node)));
    }
    add_count("--mem=", resources.memory_mib, "M");
    if (resources.time_s > 0) {
        add("--time=" + time_text(resources.time_s));
        add("--signal=B:USR1@" + std::to_string(notice_s(resources.time_s)));
    }
    for (const std::string& option : queue.extra) add(option);
    return lines;
}

// The header stands behind the options that the site's own script begins with, as Slurm takes the last word of each;
// what `set` there would do to the body is undone.
std::string fill_template(const std::string& text, const std::string& header, const std::string& body) {
    std::string script;
    bool is_comment = true;  // sbatch reads options up to the first command
    for (const std::string_view line : split(text, '\n')) {
        const bool was_comment = is_comment;
        is_comment = is_comment && (trim(line).empty() || line.starts_with('#'));
        if (was_comment && !is_comment) script += header;
        script += trim(line) == kTemplateCommand ? "set +eu\n" + body : std::string(line) + "\n";
    }
    while (script.ends_with("\n\n")) script.pop_back();
    return script;
}

class SlurmBatch : public BatchSystem {
  public:
    explicit SlurmBatch(BatchSpec spec) : spec_(std::move(spec)) {}

    std::string script(const BatchJobRef& job, const Resources& resources, const std::string& body) const override {
        const std::string header = render_header(job, resources, queue_of(spec_, resources));
        if (spec_.script_template.empty()) return "#!/bin/sh\n" + header + body;
        return fill_template(spec_.script_template, header, body);
    }

    std::string launcher() const override { return "srun --mpi=pmix --kill-on-bad-exit=1"; }

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

  private:
    BatchSpec spec_;
};

}  // namespace

std::unique_ptr<BatchSystem> make_slurm_batch(const BatchSpec& spec) {
    return std::make_unique<SlurmBatch>(spec);
}

}  // namespace atl::dispatch
