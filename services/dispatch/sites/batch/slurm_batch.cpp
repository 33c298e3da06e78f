#include <algorithm>
#include <map>

#include "services/dispatch/domain/batch_template.h"
#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/batch/batch_system.h"
#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/shell.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/site/attempt_files.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kReasonBytesMax = 200;
constexpr std::size_t kUserBytesMax = 40;

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
        const bool is_mute = why.empty() || why == "None" || why == "0:0";  // the last: no exit code, no signal
        answer.reason = shorten(json::printable(std::string(state)), kReasonBytesMax) + (is_mute ? "" : ": " + why);
        return answer;
    }
    const bool waits = state == "PENDING" || state.starts_with("REQUEUE") || state == "SPECIAL_EXIT";
    answer.state = waits ? BatchState::kQueued : BatchState::kRunning;
    answer.is_suspended = state == "SUSPENDED" || state == "STOPPED";
    if (why != "None") answer.reason = why;
    return answer;
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "CANCELLED by ada" of "CANCELLED by 1003", where the site knows the user.
std::string name_user(const std::string& reason, const std::map<std::string_view, std::string_view>& users) {
    constexpr std::string_view kBy = " by ";
    const std::size_t by = reason.find(kBy);
    if (by == std::string::npos) return reason;
    const std::size_t begin = by + kBy.size();
    const std::size_t end = std::min(reason.find(':', begin), reason.size());
    const auto user = users.find(std::string_view(reason).substr(begin, end - begin));
    if (user == users.end()) return reason;
    return reason.substr(0, begin) + shorten(json::printable(std::string(user->second)), kUserBytesMax) +
           reason.substr(end);
}

// What the record says of a queue, as options of sbatch(1) of a word each.
std::vector<std::string> queue_options(const Queue& queue) {
    std::vector<std::string> options;
    const auto add = [&](const char* option, const std::string& word) {
        if (!word.empty()) options.push_back(option + word);
    };
    add("--partition=", queue.partition);
    add("--account=", queue.account);
    add("--qos=", queue.qos);
    add("--constraint=", queue.constraint);
    add("--reservation=", queue.reservation);
    return options;
}

// sbatch(1). What is not said is the site's own.
std::string render_header(const BatchJobRef& job, const Resources& resources, const BatchSpec& spec) {
    const Queue& queue = queue_of(spec, resources);
    std::string lines;
    const auto add = [&](const std::string& option) { lines += "#SBATCH " + option + "\n"; };
    const auto add_count = [&](const char* option, std::int64_t count, const char* unit = "") {
        if (count > 0) add(option + std::to_string(count) + unit);
    };
    add("--job-name=" + job.name);
    add(std::string("--output=") + site::kBatchLog);
    for (const std::string& option : queue_options(queue)) add(option);
    add_count("--nodes=", resources.nodes);
    add_count("--ntasks-per-node=", resources.tasks_per_node);
    add_count("--ntasks=", resources.ranks());  // or a template's own would count
    add_count("--cpus-per-task=", resources.cores_per_task);
    if (resources.gpus_per_node > 0)
        add(replace_all(queue.gpu_request, "{gpus}", std::to_string(resources.gpus_per_node)));
    add_count("--mem=", resources.memory_mib, "M");
    const std::int64_t time = batch_time_s(spec, resources);
    // A job whose template asks for more than the queue gives would wait for ever.
    if (resources.time_s > 0 || template_time_s(spec.script_template) > time) add("--time=" + time_text(time));
    if (time > 0) add("--signal=B:USR1@" + std::to_string(notice_s(time)));
    if (!job.after.empty()) add("--dependency=afterany:" + job.after);
    for (const std::string& option : queue.extra) add(option);
    return lines;
}

// sinfo(1): "4", of nodes that differ "4+", of no limit "infinite" or "n/a".
std::int64_t read_time_s(std::string_view text) {
    const auto time = parse_time(std::string(text), "");
    return time.ok() ? *time : 0;
}

// sinfo(1), "NODE STATE CODES". A suffix as "*" says that the node gives no answer, "~" that it is powered down until a
// job needs it.
bool takes_jobs(std::string_view state) {
    const bool is_silent = state.ends_with('*');
    const std::string_view word = state.substr(0, state.find_first_of("*$#~%@^!-+"));
    static constexpr std::string_view kAway[] = {"down",    "drained", "draining", "drain", "error",
                                                 "unknown", "fail",    "failing",  "maint", "perfctrs"};
    return !is_silent && std::find(std::begin(kAway), std::end(kAway), word) == std::end(kAway);
}

// "down*" as people say it.
std::string state_text(std::string_view state) {
    const std::size_t end = state.find_first_of("*$#~%@^!-+");
    const std::string word = json::printable(std::string(state.substr(0, end)));
    if (end == std::string_view::npos) return word;
    if (state[end] == '*') return word + " and silent";
    return state[end] == '$' ? word + " for maintenance" : word;
}

constexpr const char* kNothingRead = "sinfo printed nothing that can be read as partitions";

// Nodes of one kind and state are one line of sinfo's; a job may ask for the largest.
void add_nodes(QueueLimits& limits, const std::vector<std::string_view>& fields) {
    limits.time_max_s = read_time_s(fields[1]);
    limits.time_default_s = read_time_s(fields[2]);
    const std::string_view size = fields[3];  // "1-infinite", "1-4", "1"
    const std::int64_t most = read_count(size.substr(size.find('-') + 1));
    limits.nodes += read_count(fields[4]);
    limits.nodes_max = most > 0 ? std::min(limits.nodes, most) : limits.nodes;
    limits.cores_max = std::max(limits.cores_max, read_count(fields[5]));
    limits.memory_mib_max = std::max(limits.memory_mib_max, read_count(fields[6]));
    if (fields[7] != "up") limits.state = json::printable(std::string(fields[7]));
    if (!takes_jobs(fields[8])) limits.nodes_away[state_text(fields[8])] += read_count(fields[4]);
}

class SlurmBatch : public BatchSystem {
  public:
    explicit SlurmBatch(BatchSpec spec) : spec_(std::move(spec)) {}

    std::string script(const BatchJobRef& job, const Resources& resources, const std::string& body) const override {
        const std::string header = render_header(job, resources, spec_);
        if (spec_.script_template.empty()) return "#!/bin/sh\n" + header + body;
        return fill_template(spec_.script_template, {header, body, job.exports, shell_word(job.directory)});
    }

    std::string launcher() const override { return "srun --mpi=pmix --kill-on-bad-exit=1"; }

    std::string functions() const override {
        std::string probe = "queue_probe() {\n    :\n";
        for (const auto& [name, queue] : spec_.queues) {
            probe += "    probe_queue " + shell_quote(name);
            for (const std::string& option : queue_options(queue)) probe += " " + shell_quote(option);
            probe += "\n";
        }
        return std::string(kSitesBatchScriptsSlurmSh) + probe + "}\n";
    }

    // squeue's word is newer than sacct's; of two jobs of one name, which a claim lets train but one of, the one that
    // has not ended counts.
    Result<std::vector<BatchAnswer>> parse(std::string_view text, const std::vector<BatchJobRef>& jobs) const override {
        std::map<std::string_view, BatchAnswer> known;
        std::map<std::string_view, BatchAnswer> accounted;
        std::map<std::string_view, std::string_view> users;
        std::string_view part;
        for (const std::string_view line : split(text, '\n')) {
            if (line == "squeue" || line == "sacct" || line == "users" || line == "end") part = line;
            const auto fields = split(line, '|');
            if (part == "users" && fields.size() == 2) users[fields[0]] = fields[1];
            if (fields.size() < 4 || !is_number(fields[1].substr(0, 1))) continue;
            const auto reason_at = static_cast<std::size_t>(fields[3].data() - line.data());
            const BatchAnswer answer = to_answer(fields[2], line.substr(reason_at));
            // Accounting never hears of some ends: it calls a job running, for good, that squeue does not know.
            if (part == "sacct" && answer.state != BatchState::kEnded) continue;
            BatchAnswer& kept = (part == "sacct" ? accounted : known)[fields[0]];
            if (kept.state == BatchState::kUnknownToQueue || kept.state == BatchState::kEnded) kept = answer;
        }
        if (part != "end") return unavailable("Slurm's answer is incomplete");
        for (const auto& [name, answer] : accounted) {
            BatchAnswer& kept = known[name];
            // Who cancelled it accounting alone tells.
            const bool tells_more = kept.end == BatchEnd::kCancelled && answer.end == BatchEnd::kCancelled;
            if (kept.state == BatchState::kUnknownToQueue || tells_more) kept = answer;
            if (kept.end == BatchEnd::kCancelled) kept.reason = name_user(kept.reason, users);
        }
        std::vector<BatchAnswer> answers;
        for (const auto& job : jobs) answers.push_back(known[job.name]);
        return answers;
    }

    std::map<std::string, Result<QueueLimits>> parse_limits(std::string_view text) const override {
        std::map<std::string, QueueLimits> partitions;
        std::string standard;
        for (const std::string_view line : split(text, '\n')) {
            const auto fields = split(line, '|');
            if (fields.size() != 9) continue;
            std::string name(fields[0]);
            if (name.ends_with('*')) {
                name.pop_back();
                standard = name;
            }
            add_nodes(partitions[name], fields);
        }
        std::vector<std::string> names;
        for (const auto& [name, limits] : partitions) names.push_back(name);
        std::map<std::string, Result<QueueLimits>> found;
        for (const auto& [name, queue] : spec_.queues) {
            const std::string& partition = queue.partition.empty() ? standard : queue.partition;
            const auto at = partitions.find(partition);
            if (partitions.empty())
                found.emplace(name, unavailable(kNothingRead));
            else if (at != partitions.end())
                found.emplace(name, at->second);
            else
                found.emplace(name, not_found(partition.empty() ? "Slurm has no default partition: name one"
                                                                : "Slurm has no partition " + in_quotes(partition) +
                                                                      "; it has " + join(names)));
        }
        return found;
    }

  private:
    BatchSpec spec_;
};

}  // namespace

std::unique_ptr<BatchSystem> make_slurm_batch(const BatchSpec& spec) {
    return std::make_unique<SlurmBatch>(spec);
}

}  // namespace atl::dispatch
