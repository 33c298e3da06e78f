#include <algorithm>

#include "services/dispatch/domain/host_key.h"
#include "services/dispatch/domain/set_command.h"
#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/sites/transport/credentials.h"
#include "services/dispatch/sites/transport/ssh_trouble.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::seconds kCheckTimeMax{30};
constexpr double kJobTimeS = 3600;  // that a certificate should last, where no job's time is known

std::string known_host_key(const Facility& facility) {
    const std::string& pinned = facility.transport.host_key;
    if (!pinned.empty()) return join(fingerprints(pinned)) + ", as pinned";
    return "as the known_hosts of the coordinator's user say; `atoll facility trust " + facility.name + "` pins it";
}

CheckRow judge_credential(const Facility& facility, const std::string& user, double now_s) {
    CheckRow row{"credential", CheckState::kOk, "logged in" + (user.empty() ? "" : " as " + user), ""};
    const auto end = certificates_end_s(read_credentials(facility.transport));
    if (!end) return row;
    const double left_s = static_cast<double>(*end) - now_s;
    const double need_s = std::max(kJobTimeS, static_cast<double>(batch_time_s(facility.batch, {})));
    row.seen += left_s > 0 ? "; the certificate ends in " + human_seconds(left_s) : "; the certificate has ended";
    if (left_s >= need_s) return row;
    row.state = CheckState::kWarn;
    row.seen += ", a job takes up to " + human_seconds(need_s);
    row.mend = "renew it by the site's tool, or `atoll facility login " + facility.name + "`";
    return row;
}

// What stands between here and the login node; `error`: of the transport, nothing where it has answered.
std::vector<CheckRow> judge_connection(const Facility& facility, const Error* error, const SiteFacts& facts,
                                       double now_s) {
    if (facility.transport.kind != TransportKind::kSsh) return {};
    const auto fact = [&](const char* key) { return facts.contains(key) ? facts.find(key)->second : std::string(); };
    CheckRow connection{"connection", CheckState::kOk, "ssh " + facility.transport.host, ""};
    CheckRow key{"host key", CheckState::kOk, known_host_key(facility), ""};
    CheckRow credential{"credential", CheckState::kSkipped, "not looked at: no login was tried", ""};
    if (error == nullptr) {
        connection.seen += " (" + fact("host") + ")";
        return {connection, key, judge_credential(facility, fact("user"), now_s)};
    }
    const Cause cause = error->cause;
    const auto [seen, mend] = split_mend(error->message);
    if (cause == Cause::kHostKey) {
        key = {"host key", CheckState::kFail, seen, mend};
    } else if (cause == Cause::kAuthentication) {
        credential = {"credential", CheckState::kFail, seen, mend};
    } else {
        const bool passes = cause == Cause::kBusy || cause == Cause::kLoginsSpent;
        connection = {"connection", CheckState::kFail, seen,
                      passes ? "wait, then try again"
                             : "try `ssh " + facility.transport.host +
                                   "` by hand; another way in: " + set_command(facility, "--ssh HOST")};
        key = {"host key", CheckState::kSkipped, "not looked at: there is no connection", ""};
    }
    return {connection, key, credential};
}

// A script gave no answer that can be read, though the way there stands.
std::string mend_shell(const Facility& facility) {
    const bool is_far = facility.transport.kind == TransportKind::kSsh;
    return "run `" + std::string(is_far ? "ssh " + facility.transport.host + " " : "") +
           "sh -c 'echo it works'` by hand: it must print only that, within seconds; `atoll facility check " +
           facility.name + "` looks again";
}

// Whatever a site says: a person may be shown the name in a command.
bool is_task_name(const std::string& name) {
    const auto is_plain = [](unsigned char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), is_plain);
}

// `facts` of queues: the lines that parse_limits() reads.
FoundLimits read_limits(const SiteFacts& facts, const BatchSystem& batch) {
    std::string lines;
    const auto [begin, end] = facts.equal_range("queue");
    for (auto at = begin; at != end; ++at) lines += at->second + "\n";
    return batch.parse_limits(lines);
}

}  // namespace

Status ScriptSite::remove(const BatchJobRef& job) {
    ATOLL_RETURN_IF_ERROR(cancel(job));
    ATOLL_RETURN_IF_ERROR(run({"rm -rf \"${1%/*}\"", {job.directory}, {}}, "removing a job's directory"));
    return {};
}

SiteCheck ScriptSite::check(const CheckOrder& order) {
    CheckSetting setting{.store_url = order.store_url, .version = ATOLL_VERSION, .launcher = facility().launcher};
    if (setting.launcher.empty()) setting.launcher = batch_->launcher();
    if (setting.launcher == "mpirun" && facility().launcher.empty() && facility().image)
        setting.launcher = kMpirunInImage;
    setting.is_through_ssh = facility().transport.data == DataPath::kSsh;
    const auto& image = facility().image;
    RemoteScript script{work_dir_setting() + std::string(kSitesScriptsToolsSh) + with_programs(kSitesScriptsCheckSh),
                        {facility().work_dir, program("atoll"), program("atoll-trainer"), order.store_url,
                         to_string(facility().batch.kind), batch_->functions(), image ? image->path : "",
                         image && !image->runtime.empty() ? image->runtime : "singularity apptainer"},
                        {},
                        kCheckTimeMax,
                        /*is_asked_for=*/true};
    std::vector<std::string> partitions;
    for (const auto& [name, queue] : facility().batch.queues) partitions.push_back(queue.partition);
    // Which the default one is Slurm alone knows.
    if (std::count(partitions.begin(), partitions.end(), "") == 0)
        script.arguments.insert(script.arguments.end(), partitions.begin(), partitions.end());
    setting.asked_s = order.now_s;
    const auto begin = std::chrono::steady_clock::now();
    const auto result = run_any(std::move(script));
    setting.answered_s = order.now_s + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const SiteFacts facts = read_facts(result.ok() ? result->out : "");
    SiteCheck check{judge_connection(facility(), result.ok() ? nullptr : &result.error(), facts, setting.answered_s)};
    const auto add = [&](const std::vector<CheckRow>& rows) {
        check.rows.insert(check.rows.end(), rows.begin(), rows.end());
    };
    if (!result.ok()) {
        auto rows = skip_site(facility(), "the site could not be asked");
        if (check.rows.empty())
            rows.front() = {"shell", CheckState::kFail, result.error().message, mend_shell(facility())};
        add(rows);
        return check;
    }
    const FoundLimits limits = read_limits(facts, *batch_);
    const SiteJudgement judgement = judge_site(facts, limits, facility(), setting);
    add(judgement.rows);
    check.no_batch_answer = judgement.no_batch_answer;
    check.has_work_dir = !facts.contains("no_work_dir");
    for (const auto& [fact, names] : {std::pair{"task", &check.tasks}, {"kept", &check.kept}}) {
        const auto [first, last] = facts.equal_range(fact);
        for (auto at = first; at != last; ++at)
            if (is_task_name(at->second)) names->push_back(at->second);
    }
    if (const auto host = facts.find("host"); host != facts.end()) check.host = host->second;
    for (const auto& [name, found] : limits) {
        if (found.ok()) check.limits[name] = *found;
        check.has_looked_at_queues |= found.ok() || found.error().code == ErrorCode::kNotFound;
    }
    if (const auto devices = facts.find("devices"); devices != facts.end()) check.devices = split_list(devices->second);
    return check;
}

}  // namespace atl::dispatch
