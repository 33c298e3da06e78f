// A coordinator whose processes die while it works, and whether it has kept its promises afterwards.
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

#include "shared/base/file.h"
#include "tests/e2e/demo/process.h"
#include "tests/e2e/demo/setup.h"
#include "tests/e2e/small_federation.h"
#include "tests/fault/evidence.h"
#include "tests/fault/injector.h"
#include "tests/fault/job_load.h"
#include "tests/fault/promises.h"

namespace atl::fault {
namespace {

namespace fs = std::filesystem;
using json::Json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Options {
    double minutes = 2;
    std::uint64_t seed = 1;
    fs::path directory;
    fs::path report;
    fs::path check;  // only looks at what a run has left
};

// What waits longest: a step at a site that has met trouble many times in a row comes again after ten minutes.
constexpr std::chrono::minutes kSettlePatience{15};

// A fault that so often found nothing to hit would never find any.
constexpr int kTriesMax = 4;

fs::path programs() {
    return ATOLL_PROGRAMS;
}

void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

// Ends what still runs of a run that was killed or broke off.
Status end_stack(const fs::path& directory) {
    const std::string second = (directory / "stack/config/second-").string();
    for (const Process& process : list_processes())
        if (process.command.find(second) != std::string::npos) send_signal(process, SIGKILL);
    if (!fs::exists(directory / "stack/stack.json")) return {};
    ATOLL_RETURN_IF_ERROR(demo::run_program({programs() / "atoll", "down", "--state", directory / "stack"}));
    return {};
}

// Whatever a stack leaves behind when its processes die is this process' child and is reaped, as an init does it: the
// container may have none. Returns in the child, which does the work; this process ends with its exit status, and ends
// the stack where that was interrupted.
void fork_from_init(const fs::path& directory) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t worker = ::fork();
    check(worker >= 0, "fork");
    if (worker == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        return;
    }
    ::signal(SIGINT, SIG_IGN);  // of a terminal, which the worker gets as well
    int status = 0;
    while (::waitpid(-1, &status, 0) != worker) continue;
    if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
    say("interrupted; ending the stack");
    const Status ended = end_stack(directory);
    if (!ended.ok()) say(describe(ended.error()));
    ::_exit(128 + WTERMSIG(status));
}

// The directory of a run before goes.
Status clear(const fs::path& directory) {
    ATOLL_RETURN_IF_ERROR(end_stack(directory));
    return demo::make_reachable(directory);
}

// The sites' programs: atoll as it is, and a trainer that takes a second.
Status make_site_programs(const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    fs::copy_file(programs() / "atoll", directory / "atoll", error);
    if (!error) fs::copy_file(programs() / "atoll-trainer", directory / "real-trainer", error);
    if (!error) fs::copy_file(ATOLL_STAND_IN_TRAINER, directory / "atoll-trainer", error);
    return error ? internal_error("cannot make " + directory.string() + ": " + error.message()) : Status();
}

// Steps of dispatch's tasks that came to their end when another process had them: what leases are for.
int count_outlived_leases(const fs::path& logs) {
    const std::string sign = "this result is dropped";
    int count = 0;
    for (const char* log : {"dispatch.log", "second dispatch.log"}) {
        const auto text = read_file(logs / log);
        for (auto at = text.ok() ? text->find(sign) : std::string::npos; at != std::string::npos;
             at = text->find(sign, at + 1))
            ++count;
    }
    return count;
}

Json report_of(const Options& options, const Injector& injector, const std::map<std::string, int>& jobs,
               const Verdict& verdict) {
    return {{"seed", options.seed},
            {"minutes", options.minutes},
            {"faults", injector.counts()},
            {"missed", injector.missed()},
            {"outlived_leases", count_outlived_leases(options.directory / "stack/logs")},
            {"jobs", jobs},
            {"updates",
             {{"accepted", verdict.updates_accepted},
              {"lost", verdict.updates_lost},
              {"counted_twice", verdict.updates_counted_twice}}},
            {"broken", verdict.broken}};
}

std::string list_counts(const std::map<std::string, int>& counts) {
    std::string text;
    for (const auto& [name, count] : counts) text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return text.empty() ? "none" : text;
}

int sum(const std::map<std::string, int>& counts) {
    int all = 0;
    for (const auto& [name, count] : counts) all += count;
    return all;
}

// Injects faults as planned, for as long as planned.
void inject_faults(const Options& options, Injector& injector, const JobLoad& load) {
    const milliseconds duration(static_cast<std::int64_t>(options.minutes * 60000));
    const std::vector<Fault> plan = plan_faults(options.seed, duration);
    const auto start = Clock::now();
    auto next_line = start;
    for (auto fault = plan.begin(); Clock::now() < start + duration;) {
        injector.mend_due();
        if (fault != plan.end() && Clock::now() >= start + fault->at) injector.inject(*fault++);
        if (Clock::now() >= next_line) {
            next_line += seconds(10);
            say(std::to_string(std::chrono::duration_cast<seconds>(Clock::now() - start).count()) + " s: " +
                std::to_string(sum(injector.counts())) + " faults; jobs: " + list_counts(load.count_by_state()));
        }
        std::this_thread::sleep_for(milliseconds(20));
    }
    injector.mend_all();
}

Verdict judge(const fs::path& directory, Json& evidence) {
    auto read = read_evidence(directory);
    if (!read.ok()) return {{"what the run has left cannot be read: " + describe(read.error())}};
    evidence = std::move(read).value();
    return check_promises(evidence);
}

// Waits until all that was asked for is done, and what it told others has gone out.
Verdict await_promises(const Options& options, JobLoad& load) {
    load.await_end(kSettlePatience);
    Json evidence;
    Verdict verdict = judge(options.directory, evidence);
    // Cleaning up and the last events come after a job's end.
    for (const auto deadline = Clock::now() + seconds(180); Clock::now() < deadline && !verdict.broken.empty();) {
        std::this_thread::sleep_for(seconds(1));
        verdict = judge(options.directory, evidence);
    }
    const Status kept = write_file_atomic(options.directory / "evidence.json", evidence.dump(1));
    if (!kept.ok()) say(describe(kept.error()));
    return verdict;
}

Result<int> run(Options options) {
    ATOLL_RETURN_IF_ERROR(clear(options.directory));
    options.directory = fs::canonical(options.directory);
    ATOLL_RETURN_IF_ERROR(make_site_programs(options.directory / "programs"));
    Injector::prepare_shim(options.directory);
    e2e::SmallFederation federation({.directory = options.directory,
                                     .facilities = {"a", "b", "c"},
                                     .site_programs = options.directory / "programs"});
    ATOLL_RETURN_IF_ERROR(federation.set_up());
    say("the stack is up; seed " + std::to_string(options.seed));
    http::ClientOptions client;
    client.base_url = federation.address().gateway;
    client.token = federation.address().token;
    Json spec = federation.job_spec("job", 1);
    spec["training"] = {{"steps", 2}, {"batch_size", 8}, {"lr", 1e-2}};
    JobLoad load(client, spec, options.directory / "jobs.json", options.seed);
    Supervisor supervisor(programs(), options.directory / "stack");
    ATOLL_TRY(const std::string stack, read_file(options.directory / "stack/stack.json"));
    Injector injector(options.directory, Json::parse(stack), supervisor);
    ATOLL_RETURN_IF_ERROR(injector.check_shim());
    {
        const std::jthread submitting([&](const std::stop_token& stop) { load.run(stop); });
        inject_faults(options, injector, load);
    }
    say("no more faults; waiting for what is under way");
    ATOLL_RETURN_IF_ERROR(supervisor.restore(std::chrono::minutes(5)));
    Verdict verdict = await_promises(options, load);
    for (const std::string& end : supervisor.unexpected_ends()) verdict.broken.push_back(end);
    for (const auto& [fault, tries] : injector.missed())
        if (tries >= kTriesMax)
            verdict.broken.push_back(std::to_string(tries) + " times the target of \"" + fault + "\" was not there");
    supervisor.stop();
    const auto jobs = load.count_by_state();
    const Json report = report_of(options, injector, jobs, verdict);
    ATOLL_RETURN_IF_ERROR(write_file_atomic(options.report, report.dump(2) + "\n"));
    say("faults: " + list_counts(injector.counts()));
    say("faults that found nothing to hit: " + list_counts(injector.missed()));
    say("leases of dispatch that were outlived: " + report.at("outlived_leases").dump());
    say("jobs: " + list_counts(jobs));
    say("updates: accepted " + std::to_string(verdict.updates_accepted) + ", lost " +
        std::to_string(verdict.updates_lost) + ", counted twice " + std::to_string(verdict.updates_counted_twice));
    for (const std::string& line : verdict.broken) say("BROKEN: " + line);
    return verdict.broken.empty() ? 0 : 1;
}

// The stack of a run that is over may be down: it runs for as long as it is looked at.
Result<int> check_only(const Options& options) {
    const std::string state = options.check / "stack";
    ATOLL_RETURN_IF_ERROR(demo::run_program({programs() / "atoll", "up", "--no-supervise", "--state", state}));
    Json evidence;
    const Verdict verdict = judge(fs::absolute(options.check), evidence);
    ATOLL_RETURN_IF_ERROR(demo::run_program({programs() / "atoll", "down", "--state", state}));
    for (const std::string& line : verdict.broken) say("BROKEN: " + line);
    say(std::to_string(verdict.updates_accepted) + " accepted updates, " + std::to_string(verdict.broken.size()) +
        " broken promises");
    return verdict.broken.empty() ? 0 : 1;
}

}  // namespace
}  // namespace atl::fault

int main(int argc, char** argv) {
    using namespace atl::fault;
    Options options;
    CLI::App program("runs jobs while everything breaks, then looks whether every promise was kept");
    program.add_option("--minutes", options.minutes, "how long faults come")->check(CLI::Range(0.0, 1e4));
    program.add_option("--seed", options.seed, "the faults depend on it alone");
    program.add_option("--directory", options.directory, "of the run; what was there before is removed");
    program.add_option("--report", options.report, "JSON file of the counts; default: beside the directory");
    program.add_option("--check", options.check, "looks only at what a run has left in this directory");
    CLI11_PARSE(program, argc, argv);
    spdlog::set_level(spdlog::level::off);  // that Kafka is away is no news here
    if (options.directory.empty()) options.directory = "build/fault/" + std::to_string(options.seed);
    options.directory = fs::absolute(options.directory).lexically_normal();
    if (options.report.empty()) options.report = options.directory.parent_path() / "report.json";
    fork_from_init(options.check.empty() ? options.directory : options.check);
    const auto status = options.check.empty() ? run(options) : check_only(options);
    if (!status.ok()) std::fprintf(stderr, "%s\n", atl::describe(status.error()).c_str());
    return status.ok() ? *status : 2;
}
