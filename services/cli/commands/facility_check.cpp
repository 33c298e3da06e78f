#include "services/cli/commands/facility_check.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "shared/base/environment.h"
#include "shared/base/id.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// A row of a coordinator of another release may say what is wrong and not what helps.
constexpr const char* kMendUnknown = "try it there by hand; `atoll doctor` looks at the coordinator";
constexpr std::chrono::seconds kLookInterval{2};
constexpr std::chrono::milliseconds kInterruptInterval{100};

// Says on standard error what takes longer than two seconds: a line that moves on a terminal, elsewhere one for each
// new thing.
class Activity {
  public:
    explicit Activity(std::string what)
        : what_(std::move(what)), thread_([this](const std::stop_token& stop) { show(stop); }) {}
    ~Activity() {
        thread_.request_stop();
        thread_.join();
        if (is_shown_ && is_terminal_) write_as_it_is(std::cerr, "\r\x1b[K");
    }
    Activity(const Activity&) = delete;
    Activity& operator=(const Activity&) = delete;
    void set(const std::string& what) {
        const std::lock_guard lock(mutex_);
        what_ = what;
    }

  private:
    void show(const std::stop_token& stop) {
        std::unique_lock lock(mutex_);
        std::string said;
        for (int seconds = 1;
             !woken_.wait_for(lock, stop, std::chrono::seconds(1), [&] { return stop.stop_requested(); }); ++seconds) {
            if (seconds < 2 || (!is_terminal_ && said == what_)) continue;
            said = what_;
            is_shown_ = true;
            if (is_terminal_) {
                write_as_it_is(std::cerr, "\r");
                std::cerr << "  " << what_ << ", " << seconds << " s ";
                write_as_it_is(std::cerr, "\x1b[K");
            } else {
                std::cerr << what_ << " …\n" << std::flush;
            }
        }
    }

    const bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
    bool is_shown_ = false;
    std::mutex mutex_;
    std::condition_variable_any woken_;
    std::string what_;
    std::jthread thread_;
};

// The signal that came; the job must not stay in a queue for nobody. A second one ends the program at once.
volatile std::sig_atomic_t interrupted = 0;

void note_interrupt(int signal) {
    if (interrupted != 0) ::_exit(128 + signal);
    interrupted = signal;
}

[[noreturn]] void end_interrupted(const std::string& job, const std::string& facility, bool is_gone) {
    std::cerr << "\nthe job " << job << (is_gone ? " is cancelled" : " is being ended at " + facility) << std::endl;
    ::_exit(128 + interrupted);
}

std::string shown_state(const std::string& state) {
    return state == "fail" ? "FAIL" : state == "skipped" ? "-" : state;
}

// Of a check whose failures leave no way to try a job.
bool can_try_job(const json& checks) {
    static const std::set<std::string> kNeeded = {"connection", "host key", "credential", "programs",
                                                  "scheduler",  "work_dir", "shell"};
    return std::none_of(checks.begin(), checks.end(), [](const json& row) {
        return text(row, "state") == "fail" && kNeeded.contains(text(row, "name"));
    });
}

// Rows of the job in place of those of the same names, which may have failed already and say better what mends that.
void merge_rows(json& checks, const json& found) {
    for (const json& row : found) {
        const auto same = std::find_if(checks.begin(), checks.end(),
                                       [&](const json& other) { return other.at("name") == row.at("name"); });
        if (same == checks.end())
            checks.push_back(row);
        else if (text(*same, "state") != "fail")
            *same = row;
    }
}

json compute_row(const char* state, const std::string& seen, const std::string& mend = "") {
    return {{"name", "compute"}, {"state", state}, {"seen", seen}, {"mend", mend}};
}

// What the job found; where it was not waited for any longer, a warning.
Result<json> watch_job(http::Client& client, const CheckFlags& flags, const std::string& path, Activity& activity) {
    const auto deadline = Clock::now() + std::chrono::minutes(flags.wait_minutes);
    for (;;) {
        ATOLL_TRY(const json seen, client.get_json(path));
        const std::string reason = text(seen, "reason");
        const std::string state = text(seen, "state") + (reason.empty() ? "" : " (" + reason + ")");
        if (text(seen, "state") == "ended" || interrupted != 0) return seen.at("checks");
        if (Clock::now() >= deadline)
            return json::array(
                {compute_row("warn", "after " + std::to_string(flags.wait_minutes) + " min the job was still " + state,
                             "`--wait MINUTES` waits longer")});
        activity.set("a job of the check at " + flags.name + " is " + state);
        const auto next = Clock::now() + kLookInterval;
        while (interrupted == 0 && Clock::now() < next) std::this_thread::sleep_for(kInterruptInterval);
    }
}

// What helps where no job of the check could be put into the queue.
std::string mend_submission(const Error& error, const CheckFlags& flags) {
    if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kResourceExhausted)
        return "it may pass: the same command tries again; `squeue --me` and `sbatch` there by hand tell more";
    return "`atoll facility show " + flags.name + "` shows the queue's settings, `atoll facility set " + flags.name +
           " --set batch.queues." + (flags.queue.empty() ? "QUEUE" : flags.queue) +
           ".MEMBER=VALUE` changes them; another queue: --queue NAME";
}

Result<json> try_job(http::Client& client, const CheckFlags& flags, Activity& activity) {
    const std::string id = random_hex(8);
    const std::string path = "/v1/facilities/" + segment(flags.name) + "/check-jobs/" + id;
    json asked = json::object();
    if (!flags.queue.empty()) asked["queue"] = flags.queue;
    if (flags.gpus > 0) asked["gpus_per_node"] = flags.gpus;
    activity.set("putting a job into the queue of " + flags.name);
    std::signal(SIGINT, note_interrupt);
    std::signal(SIGTERM, note_interrupt);
    // That the terminal is closed; nohup has it ignored.
    if (std::signal(SIGHUP, note_interrupt) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
    ATOLL_TRY(const auto submitted, client.call(http::Method::kPut, path, asked.dump()));
    if (const Status status = submitted.check(); !status.ok()) {
        if (status.error().code == ErrorCode::kInvalidArgument && status.error().cause != Cause::kSite)
            return status.error();
        return json::array({compute_row("fail", "no job could be submitted: " + describe(status.error()),
                                        mend_submission(status.error(), flags))});
    }
    auto found = watch_job(client, flags, path, activity);
    activity.set("ending the job and taking its directory away");
    const auto ended = client.call(http::Method::kDelete, path);
    if (interrupted != 0) end_interrupted("atoll-check-" + id + "-1", flags.name, ended.ok() && ended->check().ok());
    return found;
}

// Of each dataset's newest version at the facility: what a model would not learn from it.
void look_at_datasets(const Context& context, const std::string& facility, json& checks) {
    const auto versions = versions_at(context, facility);
    if (!versions.ok()) {
        checks.push_back({{"name", "datasets"},
                          {"state", "skipped"},
                          {"seen", "not looked at: " + describe(versions.error())},
                          {"mend", ""}});
        return;
    }
    std::map<std::string, json> newest;
    for (const json& version : *versions) newest[text(version, "dataset")] = version;
    for (const auto& [dataset, version] : newest)
        if (const std::string lack = lack_of_ends(version); !lack.empty())
            checks.push_back({{"name", "dataset " + dataset},
                              {"state", "warn"},
                              {"seen", "version " + text(version, "version") + ": " + lack +
                                           ": a model does not learn there where a text ends"},
                              {"mend", kMendEnds}});
}

// What mends a row, after its arrow. A command is to be copied whole: it has a line of its own where all does not fit.
std::string mend_text(const std::string& mend, std::size_t indent, std::size_t width) {
    const std::string folded = fold(mend, indent, indent, width);
    const auto command = mend.find(": atoll ");
    if (mend.starts_with("atoll ") || folded.find('\n') + 1 == folded.size()) return mend + "\n";
    if (command == std::string::npos) return folded;
    return fold(mend.substr(0, command + 1), indent, indent, width) + std::string(indent, ' ') +
           mend.substr(command + 2) + "\n";
}

}  // namespace

std::string check_table(const json& rows, std::size_t width) {
    std::size_t longest = 0;
    for (const json& row : rows) longest = std::max(longest, text(row, "name").size());
    const std::size_t indent = 6 + longest + 2;
    std::string table;
    for (const json& row : rows) {
        std::string head = shown_state(text(row, "state"));
        head.resize(6, ' ');
        head += text(row, "name");
        head.resize(indent, ' ');
        table += head + fold(text(row, "seen"), indent, indent, width);
        std::string mend = text(row, "mend");
        if (mend.empty() && row.contains("mend") && text(row, "state") == "fail") mend = kMendUnknown;
        if (!mend.empty()) table += std::string(indent, ' ') + "→ " + mend_text(mend, indent + 2, width);
    }
    return table;
}

std::size_t terminal_width() {
    if (const std::string columns = environment("COLUMNS"); !columns.empty())
        return static_cast<std::size_t>(std::max(0, std::atoi(columns.c_str())));
    return terminal_columns();
}

Status run_check(const Context& context, const CheckFlags& flags) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json facility, get_named(client, "/v1/facilities", "facility", flags.name));
    const std::string way = text(facility, "transport", "kind") == "ssh" ? "ssh " + text(facility, "transport", "host")
                                                                         : "the coordinator's machine";
    json answer;
    const auto began = Clock::now();
    {
        Activity activity("looking at " + flags.name + ", " + way);
        ATOLL_TRY(answer, client.post_json("/v1/facilities/" + segment(flags.name) + "/check", json::object()));
        if (flags.job && can_try_job(answer.at("checks"))) {
            ATOLL_TRY(const json found, try_job(client, flags, activity));
            merge_rows(answer["checks"], found);
            answer["seconds"] = std::chrono::duration<double>(Clock::now() - began).count();
        }
        look_at_datasets(context, flags.name, answer["checks"]);
    }
    const auto failed = [](const json& row) { return text(row, "state") == "fail"; };
    answer["ok"] = std::none_of(answer.at("checks").begin(), answer.at("checks").end(), failed);
    if (context.json) {
        ATOLL_RETURN_IF_ERROR(print_json(answer));
    } else {
        const std::string host = text(answer, "host");
        std::cout << flags.name << ": " << way << (host.empty() ? "" : " (" + host + ")") << ", checked in "
                  << human_seconds(answer.value("seconds", 0.0)) << "\n"
                  << check_table(answer.at("checks"), terminal_width());
    }
    if (answer.at("ok").get<bool>()) return {};
    return unavailable("facility " + flags.name + " is not ready for jobs");
}

}  // namespace atl::cli
