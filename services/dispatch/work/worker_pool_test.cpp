#include "services/dispatch/work/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "services/dispatch/metrics.h"
#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

class WorkerPoolTest : public DispatchServiceTest {
  protected:
    std::string submit_as(const std::string& name) {
        Json request = job_request(1);
        request["name"] = name;
        request["evaluation"] = {{"at", Json::array()}};
        return submit(request);
    }
};

TEST_F(WorkerPoolTest, AJobThatCannotBeAdvancedKeepsNoOtherFromItsDeadline) {
    std::ofstream(fake("train.waits")) << "";
    const std::string one = submit_as("one");
    const std::string other = submit_as("other");
    const auto& [broken, good] = std::minmax(one, other);  // late jobs are looked at in this order
    auto connection = connect();
    ASSERT_TRUE(connection
                    .script("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                            "$$ BEGIN RAISE EXCEPTION 'no round of this job can be written'; END $$;"
                            "CREATE TRIGGER refuse BEFORE INSERT ON rounds FOR EACH ROW WHEN (NEW.job_id = '" +
                            broken +
                            "') EXECUTE FUNCTION refuse();"
                            "UPDATE rounds SET deadline_at = now() WHERE state = 'training'")
                    .ok());
    EXPECT_TRUE(reaches(good, "failed")) << get("/v1/jobs/" + good).dump(2);
    EXPECT_NE(error_of(good), "");
    EXPECT_EQ(state_of(broken), "running");
    ASSERT_TRUE(connection.query("DROP TRIGGER refuse ON rounds").ok());
    EXPECT_TRUE(reaches(broken, "failed")) << "it was tried again";
    std::filesystem::remove(fake("train.waits"));
}

// Its lease ran out while it asked: another has asked since.
TEST_F(DispatchTest, WhatALateWorkerHeardOfAFacilityIsNotRecorded) {
    std::atomic<int> late = 0;
    WorkerSeams seams;
    seams.lose_result = [&](const Task& task) {
        if (task.facility != "leonardo") return false;
        check(connect().query("UPDATE tasks SET fence = fence + 1 WHERE id = $1", {task.id}).ok(), "the lease");
        ++late;
        return false;
    };
    begin(seams);
    auto connection = connect();
    ASSERT_TRUE(connection
                    .query("UPDATE facilities SET spec = jsonb_set(spec, '{transport}',"
                           " '{\"kind\": \"ssh\", \"host\": \"nowhere.invalid\"}') WHERE name = 'leonardo'")
                    .ok());
    submit(job_request(1));
    const auto eventually_late = [&] {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
        while (late < 2 && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return late >= 2;  // the first one's result has been dropped by then
    };
    ASSERT_TRUE(eventually_late());
    EXPECT_TRUE(connection.query("SELECT 1 FROM facilities WHERE waiting_since IS NOT NULL").value().empty())
        << "the facility is left alone";
    EXPECT_GE(metrics().counter(kMetrics["atoll_leases_lost_total"]).Value(), 1);
}

TEST_F(DispatchTest, AWorkerIsBusyWhileItHasAStepInHand) {
    std::atomic<bool> is_held = true;
    WorkerSeams seams;
    seams.lose_result = [&](const Task&) {
        is_held.wait(true);
        return false;
    };
    begin(seams);
    const auto busy = [&] { return metrics().gauge(kMetrics["atoll_workers_busy"]).Value(); };
    EXPECT_TRUE(eventually([&] { return busy() == 0; }));
    const std::string job = submit(job_request(1));
    EXPECT_TRUE(eventually([&] { return busy() >= 1; })) << "the steps of its first tasks";
    EXPECT_LE(busy(), metrics().gauge(kMetrics["atoll_workers"]).Value() * 4) << "slow ones have places of their own";
    is_held = false;
    is_held.notify_all();
    EXPECT_TRUE(eventually([&] { return state_of(job) == "completed"; })) << error_of(job);
    EXPECT_TRUE(eventually([&] { return busy() == 0; }));
}

}  // namespace
}  // namespace atl::dispatch
