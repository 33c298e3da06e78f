#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "services/dispatch/db/federation.h"
#include "services/dispatch/metrics.h"
#include "services/dispatch/testing/job_lifecycle_fixture.h"
#include "services/dispatch/work/federation_metrics.h"

namespace atl::dispatch {
namespace {

using json::Json;

TEST_F(JobLifecycleTest, EachMetricHasASeriesWhileAJobRuns) {
    begin();
    Json request = job_request(1);
    request["evaluation"] = {{"models", "global"}};
    const std::string job = submit(request);
    // No ssh and no bytes here, nothing goes wrong, and what trains is done before it was seen to run.
    std::set<std::string_view> missing = {};
    for (const Metric& row : kMetrics.rows) missing.insert(row.name);
    for (const char* name :
         {"atoll_facility_logins_total", "atoll_facility_credential_expiry_timestamp_seconds",
          "atoll_transfer_bytes_total", "atoll_transfer_seconds_total", "atoll_attempts_failed_total",
          "atoll_tasks_waiting", "atoll_node_seconds_total", "atoll_facility_login_budget_remaining"})
        missing.erase(name);
    metrics::Registry now;  // the service's own gauges are seconds old
    auto connection = connect();
    const auto look = [&] {
        const auto state = read_federation_state(connection);
        ASSERT_TRUE(state.ok()) << describe(state.error());
        show(*state, now);
        const std::string text = now.expose() + metrics().expose();
        std::erase_if(missing, [&](std::string_view name) {
            return text.find("\n" + std::string(name) + "{") != std::string::npos ||
                   text.find("\n" + std::string(name) + " ") != std::string::npos ||
                   text.find("\n" + std::string(name) + "_count{") != std::string::npos;
        });
    };
    for (std::string state; state != "completed" && !HasFatalFailure(); state = state_of(job)) {
        ASSERT_NE(state, "failed") << error_of(job);
        look();
    }
    auto transaction = pg::Transaction::begin(connection).value();  // a training that runs, for this look alone
    for (const char* sql :
         {"UPDATE jobs SET state = 'running'", "UPDATE tasks SET state = 'running' WHERE kind = 'train'",
          "UPDATE attempts SET step = 'running', progress = progress || '{\"last_step\": {\"step\": 7, \"loss\": 2.5, "
          "\"grad_norm\": 1, \"tokens_per_s\": 9, \"mfu\": 0.4, \"peak_bytes\": 5, \"step_s\": 2, "
          "\"exposed_comm_s\": 1, \"eta_s\": 60, \"time_unix_s\": 1.5}}'"})
        ASSERT_TRUE(transaction.query(sql).ok());
    look();
    EXPECT_NE(now.expose().find("atoll_training_loss{atoll_job=\""), std::string::npos);
    EXPECT_TRUE(eventually([&] { return look(), missing.empty(); }));
    for (const std::string_view name : missing) ADD_FAILURE() << name << " has no series";
    EXPECT_EQ(metrics().expose().find(job), std::string::npos) << "an id in a label";
}

}  // namespace
}  // namespace atl::dispatch
