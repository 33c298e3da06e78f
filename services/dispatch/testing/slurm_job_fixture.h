#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/base/subprocess.h"
#include "tests/slurm/slurm_cluster.h"

namespace atl::dispatch {

// atoll of the site, a script for sh, with a model that the trainer can read; see FakeCatalog for what it leaves
// behind.
extern const char* const kSiteAtoll;

// Jobs at "leonardo", which has a real Slurm cluster of two nodes behind a real ssh, and the real trainer.
class SlurmJobTest : public DispatchTest {
  protected:
    void SetUp() override;
    virtual std::vector<std::string> cluster_options() const { return {"--nodes", "2", "--preempt"}; }
    void add_slurm_facility();
    json::Json job_on_two_nodes(std::int64_t steps) const {
        json::Json request = job_request(1);
        request["participants"] = {{{"facility", "leonardo"},
                                    {"dataset", "it"},
                                    {"resources", {{"nodes", 2}, {"tasks_per_node", 1}, {"time", "0:30:00"}}}}};
        request["training"] = {{"steps", steps}, {"batch_size", 2}, {"lr", 0.01}};
        return request;
    }
    // The newest training.
    json::Json training(const std::string& job) {
        const json::Json rounds = get("/v1/jobs/" + job + "/rounds");
        for (const json::Json& round : rounds.at("items"))
            for (const json::Json& task : round.at("tasks"))
                if (task.at("kind") == "train") return task;
        return {{"step", ""}, {"id", ""}};
    }
    bool is_at(const std::string& job, const std::string& step) {
        return eventually([&] { return training(job).value("step", "") == step; });
    }
    // Of an attempt of the newest training.
    std::string file(const std::string& job, int attempt, const std::string& name) {
        const auto text = read_file(std::filesystem::path(cluster_->work_dir()) / "tasks" /
                                    training(job).at("id").get<std::string>() / std::to_string(attempt) / name);
        return text.ok() ? *text : "";
    }
    // Why that attempt of the newest training ended; empty: it has not.
    std::string why_ended(const std::string& job, int attempt) {
        const json::Json task = training(job);
        for (const json::Json& one : task.value("earlier_attempts", json::Json::array()))
            if (one.at("attempt") == attempt) return one.at("error");
        const auto member = [&](const char* key) { return task.value(key, json::Json()); };  // null: none yet
        const bool is_over = member("attempt") == attempt && member("step") != "running";
        return is_over && member("attempt_error").is_string() ? member("attempt_error").get<std::string>() : "";
    }
    bool is_started(const std::string& job, int attempt) {
        return std::filesystem::exists(std::filesystem::path(cluster_->work_dir()) / "tasks" /
                                       training(job).at("id").get<std::string>() / std::to_string(attempt) / "started");
    }
    std::string errors(const std::string& job) {
        return error_of(job) + "\n" + training(job).dump() + "\n" + file(job, 1, "stderr.log") +
               file(job, 1, "batch.log");
    }
    // The steps that an attempt of the newest training has printed.
    std::vector<std::int64_t> steps(const std::string& job, int attempt) {
        std::vector<std::int64_t> numbers;
        std::istringstream lines(file(job, attempt, "stdout.jsonl"));
        for (std::string line; std::getline(lines, line);)
            if (const auto step = json::parse(line); step.ok() && step->contains("step"))
                numbers.push_back(step->at("step"));
        return numbers;
    }
    // As eventually(), of what takes several batch jobs.
    static bool within_minutes(const std::function<bool()>& condition) {
        for (int tries = 0; tries < 24; ++tries)
            if (eventually(condition)) return true;
        return false;
    }
    bool completes(const std::string& job) {
        return within_minutes([&] { return state_of(job) != "running"; }) && state_of(job) == "completed";
    }
    // Waits until an attempt has begun where the one before it has left off.
    void expect_it_goes_on(const std::string& job, int attempt) {
        ASSERT_TRUE(within_minutes([&] { return !steps(job, attempt).empty(); })) << errors(job);
        EXPECT_GT(steps(job, attempt).front(), 1);
        EXPECT_LE(steps(job, attempt).front(), steps(job, attempt - 1).back() + 1);
    }

    static std::map<std::string, std::string> words_of(const std::string& line) {
        std::map<std::string, std::string> words;
        std::istringstream all(line);
        for (std::string word; all >> word;) words[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
        return words;
    }
    // Words of Slurm's completion log about the batch jobs of the newest training, by their names: "SubmitTime" and so
    // on.
    std::map<std::string, std::map<std::string, std::string>> completions(const std::string& job) {
        std::map<std::string, std::map<std::string, std::string>> found;
        std::istringstream log(read_file(cluster_->path("log/jobcomp.txt")).value());
        for (std::string line; std::getline(log, line);) {
            auto words = words_of(line);
            if (!words["Name"].starts_with("atoll-" + training(job).at("id").get<std::string>())) continue;
            EXPECT_TRUE(found.emplace(words["Name"], words).second) << "twice in the queue: " << line;
        }
        return found;
    }
    std::string name(const std::string& job, std::int64_t attempt) {
        return "atoll-" + training(job).at("id").get<std::string>() + "-" + std::to_string(attempt);
    }
    // The trainer that the site's atoll-trainer executes.
    std::string trainer_program() const { return fake("trainer").string(); }
    // Sends the trainer's processes a signal.
    void signal_trainer(int signal) const {
        const auto found =
            run_command({"pgrep", "-u", "atoll-" + cluster_->name(), "-f", "^" + trainer_program() + " train"});
        std::istringstream pids(found->out);
        int count = 0;
        for (pid_t pid = 0; pids >> pid; ++count) EXPECT_EQ(::kill(pid, signal), 0);
        EXPECT_GT(count, 0) << "no trainer runs";
    }
    // Stops an attempt's trainer for so many seconds at least and until the job that goes on with it is in the queue.
    void hold_until_continued(const std::string& job, int attempt, int seconds_min) {
        ASSERT_TRUE(within_minutes([&] { return !steps(job, attempt).empty(); })) << errors(job);
        signal_trainer(SIGSTOP);
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds_min);
        ASSERT_TRUE(within_minutes([&] { return !file(job, attempt + 1, "jobid").empty(); })) << errors(job);
        std::this_thread::sleep_until(until);
        signal_trainer(SIGCONT);
    }
    json::Json job_on_one_node(std::int64_t steps, const json::Json& training) const {
        json::Json request = job_on_two_nodes(steps);
        request["participants"][0]["resources"] = {{"time", "0:30:00"}};
        request["training"]["deterministic"] = true;
        request["training"]["batch_size"] = 48;
        request["training"].update(training);
        request["evaluation"] = {{"at", json::Json::array()}};
        return request;
    }
    // The update of a training that nothing disturbs, and its seconds.
    std::pair<std::string, double> undisturbed(std::int64_t steps) {
        const std::string job = submit(job_on_one_node(steps, json::Json::object()));
        EXPECT_TRUE(completes(job)) << errors(job);
        EXPECT_EQ(training(job).at("attempt"), 1);
        const std::string log = file(job, 1, "stdout.jsonl");
        const auto summary = json::parse(log.substr(log.find("{\"summary\"")));
        return {training(job).value("version", ""), summary.ok() ? summary->value("wall_s", 0.0) : 0.0};
    }

    std::unique_ptr<SlurmCluster> cluster_;
};

// Those that take minutes together: skipped where ATOLL_LONG_TESTS is not set, which `./dev test --slurm` does.
class SlurmLongJobTest : public SlurmJobTest {
  protected:
    void SetUp() override;
};

}  // namespace atl::dispatch
