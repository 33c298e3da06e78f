#include "tests/fault/job_load.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "shared/base/backoff.h"
#include "shared/base/file.h"

namespace atl::fault {
namespace {

using json::Json;
using Clock = std::chrono::steady_clock;

constexpr int kJobsAtOnce = 4;
constexpr std::chrono::milliseconds kLookInterval{500};

}  // namespace

bool is_final(const std::string& state) {
    return state == "completed" || state == "failed" || state == "cancelled";
}

JobLoad::JobLoad(http::ClientOptions coordinator, Json spec, std::filesystem::path record, std::uint64_t seed)
    : client_([&] {
          coordinator.attempts_max = 1;
          coordinator.timeout = std::chrono::seconds(10);
          return std::move(coordinator);
      }()),
      spec_(std::move(spec)),
      record_(std::move(record)),
      random_(seed) {
    keep_record();
}

JobLoad::Job JobLoad::make_job() {
    const auto one_in = [this](std::uint64_t n) { return random_() % n == 0; };
    Job job;
    char name[16];
    std::snprintf(name, sizeof name, "job-%04zu", jobs_.size() + 1);
    job.name = name;
    job.key = "submit-" + job.name;
    job.spec = spec_;
    job.spec["name"] = job.name;
    job.spec["rounds"] = 2 + random_() % 2;
    // Whatever is killed at a site costs an attempt.
    job.spec["attempts_max"] = 100;
    if (one_in(4)) {
        job.short_deadline = true;
        job.spec["quorum"] = 2;
        job.spec["round_deadline_s"] = 20 + random_() % 60;
    }
    if (one_in(2))
        job.spec["evaluation"] = {{"at", Json::array()}};
    else if (one_in(3))
        job.spec["evaluation"] = {{"models", "all"}};
    if (one_in(4))
        job.spec["strategy"] = {{"name", "trimmed_mean"}};
    else if (one_in(4))
        job.spec["strategy"] = {{"name", "fedavg"}, {"outer", {{"optimizer", "nesterov"}}}};
    if (one_in(8))
        job.cancel_at = 1 + static_cast<int>(random_() % 40);
    else if (one_in(6))
        job.pause_at = 1 + static_cast<int>(random_() % 20);
    return job;
}

void JobLoad::run(const std::stop_token& stop) {
    while (wait_unless_stopped(stop, kLookInterval)) {
        if (count_unfinished() < kJobsAtOnce) {
            const std::lock_guard lock(mutex_);
            jobs_.push_back(make_job());
        }
        look_at_all();
    }
}

void JobLoad::look_at_all() {
    std::vector<Job> jobs;
    {
        const std::lock_guard lock(mutex_);
        jobs = jobs_;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (is_final(jobs[i].state)) continue;
        if (jobs[i].id.empty())
            submit(jobs[i]);
        else
            look(jobs[i]);
        const std::lock_guard lock(mutex_);
        jobs_[i] = jobs[i];
    }
    keep_record();
}

void JobLoad::submit(Job& job) {
    const auto created = client_.post_json("/dispatch/v1/jobs", job.spec, job.key);
    if (created.ok()) {
        job.id = created->at("id");
        job.state = "running";
    } else if (!is_transient(created.error().code) && created.error().code != ErrorCode::kInternal) {
        std::fprintf(stderr, "%s: refused: %s\n", job.name.c_str(), describe(created.error()).c_str());
    }
}

bool JobLoad::ask(const Job& job, const char* verb) {
    const auto answer = client_.post_json("/dispatch/v1/jobs/" + job.id + "/" + verb, Json::object(),
                                          std::string(verb) + "-" + job.name);
    return answer.ok() || answer.error().code == ErrorCode::kConflict;  // it may have ended before
}

void JobLoad::look(Job& job) {
    constexpr int kPauseLooks = 6;
    ++job.looks;
    if (job.cancel_at != 0 && job.looks >= job.cancel_at) {
        job.cancelled = true;
        if (ask(job, "cancel")) job.cancel_at = 0;
    }
    if (job.pause_at != 0 && job.looks == job.pause_at && !ask(job, "pause")) --job.looks;
    if (job.pause_at != 0 && job.looks == job.pause_at + kPauseLooks && !ask(job, "resume")) --job.looks;
    const auto now = client_.get_json("/dispatch/v1/jobs/" + job.id);
    if (now.ok()) job.state = now->at("state");
}

bool JobLoad::await_end(std::chrono::seconds patience) {
    for (const auto deadline = Clock::now() + patience; count_unfinished() > 0;) {
        if (Clock::now() > deadline) return false;
        look_at_all();
        std::this_thread::sleep_for(kLookInterval);
    }
    return true;
}

int JobLoad::count_unfinished() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(
        std::count_if(jobs_.begin(), jobs_.end(), [](const Job& job) { return !is_final(job.state); }));
}

std::map<std::string, int> JobLoad::count_by_state() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, int> counts;
    for (const Job& job : jobs_) ++counts[job.state];
    return counts;
}

void JobLoad::keep_record() const {
    Json jobs = Json::array();
    {
        const std::lock_guard lock(mutex_);
        for (const Job& job : jobs_)
            jobs.push_back({{"name", job.name},
                            {"key", job.key},
                            {"id", job.id},
                            {"cancelled", job.cancelled},
                            {"short_deadline", job.short_deadline}});
    }
    const Status kept = write_file_atomic(record_, jobs.dump(1));
    check(kept.ok(), kept.ok() ? "" : kept.error().message);
}

}  // namespace atl::fault
