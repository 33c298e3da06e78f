#include <csignal>

#include "services/dispatch/testing/slurm_job_fixture.h"
#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

using json::Json;

// A controller that is stopped lets its clients wait, as one does that swaps.
class StoppedController {
  public:
    explicit StoppedController(const SlurmCluster& cluster)
        : pid_(static_cast<pid_t>(std::stoi(read_file(cluster.path("run/slurmctld.pid")).value()))) {
        EXPECT_EQ(::kill(pid_, SIGSTOP), 0);
    }
    ~StoppedController() { go_on(); }
    StoppedController(const StoppedController&) = delete;
    StoppedController& operator=(const StoppedController&) = delete;
    void go_on() const { EXPECT_EQ(::kill(pid_, SIGCONT), 0); }

  private:
    pid_t pid_;
};

class SlurmSilenceTest : public SlurmLongJobTest {
  protected:
    static bool says_so(const Json& waiting) {
        return waiting.dump().find("squeue gave no answer within 8 s: is slurmctld up?") != std::string::npos &&
               waiting.dump().find("\"since\":\"20") != std::string::npos;
    }
    // What people look at while a job runs: its task, the job, the list of jobs, the facility.
    bool is_said(const std::string& job) {
        return says_so(training(job).value("waiting", Json())) && says_so(get("/v1/jobs/" + job).at("waiting")) &&
               says_so(get("/v1/jobs").at("items").at(0).at("waits")) &&
               says_so(get("/v1/facilities/leonardo").at("waiting"));
    }
    bool is_nothing_said(const std::string& job) {
        return training(job).value("waiting", Json()).is_null() && get("/v1/jobs/" + job).at("waiting").empty() &&
               get("/v1/jobs").at("items").at(0).at("waits").empty() &&
               get("/v1/facilities/leonardo").at("waiting").is_null();
    }
    std::int64_t step_seen(const std::string& job) {
        return training(job).value("progress", Json::object()).value("step", std::int64_t{0});
    }
    static bool within_half_a_minute(const std::function<bool()>& condition) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (std::chrono::steady_clock::now() < deadline) {
            if (condition()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return false;
    }
};

TEST_F(SlurmSilenceTest, ASlurmThatHangsHidesNothingOfWhatRuns) {
    const std::string job = submit(job_on_one_node(1'000'000, {{"batch_size", 2}}));
    ASSERT_TRUE(within_minutes([&] { return step_seen(job) > 0; })) << errors(job);
    const StoppedController stopped(*cluster_);
    EXPECT_TRUE(within_half_a_minute([&] { return is_said(job); })) << errors(job);
    const std::int64_t before = step_seen(job);
    EXPECT_TRUE(within_minutes([&] { return step_seen(job) > before; })) << errors(job);
    EXPECT_TRUE(get("/v1/facilities/leonardo").value("silent_since", Json()).is_null()) << "the site answers";
    for (const Json& row : post("/v1/facilities/leonardo/check", Json::object()).json()->at("checks")) {
        if (row.at("name") != "scheduler") continue;
        EXPECT_NE(row.at("seen").dump().find("Slurm does not answer"), std::string::npos) << row;
    }
    stopped.go_on();
    EXPECT_TRUE(within_minutes([&] { return is_nothing_said(job); })) << errors(job);
    EXPECT_EQ(training(job).at("attempt"), 1);
}

// As an attempt that has run for hours: Slurm is asked about it once in an hour.
TEST_F(SlurmSilenceTest, ItIsSaidWithinHalfAMinuteHoweverSeldomAttemptsAreAskedAbout) {
    stop_service();
    batch_poll_ms_ = 3'600'000;
    start_service();
    const std::string job = submit(job_on_one_node(1'000'000, {{"batch_size", 2}}));
    ASSERT_TRUE(within_minutes([&] { return step_seen(job) > 0; })) << errors(job);
    EXPECT_TRUE(is_nothing_said(job));
    const StoppedController stopped(*cluster_);
    EXPECT_TRUE(within_half_a_minute([&] { return is_said(job); })) << errors(job);
    stopped.go_on();
    EXPECT_TRUE(within_half_a_minute([&] { return is_nothing_said(job); })) << errors(job);
    const std::int64_t before = step_seen(job);
    EXPECT_TRUE(within_minutes([&] { return step_seen(job) > before; })) << errors(job);
    EXPECT_EQ(training(job).at("attempt"), 1);
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
}

}  // namespace
}  // namespace atl::dispatch
