#include <gtest/gtest.h>

#include <algorithm>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

class DeletionRoutesTest : public DispatchServiceTest {
  protected:
    http::ClientResponse remove(const std::string& path) {
        auto answer = client().call(Method::kDelete, path).value();
        for (const std::string& fault : answers_.faults(Method::kDelete, path, answer)) ADD_FAILURE() << fault;
        return answer;
    }
    http::ClientResponse prune(const Json& order) {
        auto answer = client().call(Method::kPost, "/v1/prune", order.dump()).value();
        for (const std::string& fault : answers_.faults(Method::kPost, "/v1/prune", answer)) ADD_FAILURE() << fault;
        return answer;
    }
    std::int64_t count(const std::string& table) {
        return connect().query("SELECT count(*) AS n FROM " + table)->integer(0, "n");
    }
};

TEST_F(DeletionRoutesTest, AFacilityGoesWithNoJobThatNeedsItAndItsHistoryStays) {
    const std::string job = submit(job_request(1));
    const auto needed = remove("/v1/facilities/leonardo");
    EXPECT_EQ(needed.status, 409);
    EXPECT_NE(needed.body.find(job), std::string::npos) << needed.body;
    ASSERT_TRUE(reaches(job, "completed"));
    EXPECT_TRUE(eventually([&] { return remove("/v1/facilities/leonardo").status == 204; }))
        << "it is cleaned up after";
    EXPECT_EQ(remove("/v1/facilities/leonardo").status, 404);
    EXPECT_EQ(get("/v1/jobs/" + job + "/rounds").at("items").at(1).at("tasks").at(1).at("facility"), "leonardo");
    const auto has_text = [&](const std::string& facility) {
        const Json logs = get("/v1/jobs/" + job + "/logs?format=json").at("items");
        return std::any_of(logs.begin(), logs.end(),
                           [&](const Json& log) { return log.at("facility") == facility && log.contains("text"); });
    };
    EXPECT_TRUE(has_text("leonardo") && has_text("karolina"));
    ASSERT_TRUE(connect().query("DELETE FROM attempt_logs").ok());
    EXPECT_TRUE(!has_text("leonardo") && has_text("karolina")) << "what is not kept is at the site";
}

TEST_F(DeletionRoutesTest, AJobThatHasEndedIsDeletedWithAllItsRows) {
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    const std::string job = submit(job_request(1));
    const std::string path = "/v1/jobs/" + job;
    EXPECT_EQ(remove(path).status, 409);
    std::filesystem::remove(fake("stage.waits"));
    ASSERT_TRUE(reaches(job, "completed"));
    http::ClientResponse removed;
    EXPECT_TRUE(eventually([&] { return (removed = remove(path)).status == 200; })) << removed.body;
    const Json left = removed.json()->at("left");
    ASSERT_EQ(left.size(), 2U) << left;
    EXPECT_EQ(left[1]["facility"], "leonardo");
    for (const Json& task : left[1]["tasks"])
        EXPECT_TRUE(std::filesystem::exists(work_dir("leonardo") / "tasks" / task.get<std::string>())) << task;
    EXPECT_EQ(remove(path).status, 404);
    EXPECT_EQ(client().call(Method::kGet, path + "/events")->status, 404);
    for (const char* table : {"jobs", "rounds", "tasks", "attempts", "job_events"}) EXPECT_EQ(count(table), 0) << table;
}

TEST_F(DeletionRoutesTest, APreparationThatHasEndedIsDeleted) {
    const Json made = client()
                          .post_json("/v1/preparations", {{"facility", "leonardo"},
                                                          {"dataset", "it"},
                                                          {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                                                          {"input", "raw/it.jsonl"},
                                                          {"seq_len", 128}})
                          .value();
    const std::string path = "/v1/preparations/" + made.at("id").get<std::string>();
    EXPECT_TRUE(eventually([&] { return get(path).at("state") == "done"; }));
    const std::string place = get(path).at("result").at("path");
    EXPECT_EQ(remove(path).json()->at("left").at(0).at("facility"), "leonardo");
    EXPECT_EQ(remove(path).status, 404);
    EXPECT_TRUE(std::filesystem::exists(work_dir("leonardo") / place / "train")) << "what it prepared stays";
}

TEST_F(DeletionRoutesTest, WhatEndedLongAgoIsPrunedOrOnlyNamed) {
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "completed"));
    EXPECT_TRUE(eventually([&] { return count("tasks WHERE state IN ('pending', 'running')") == 0; }));
    ASSERT_TRUE(connect().query("UPDATE jobs SET finished_at = now() - interval '100 days'").ok());
    const Json named = prune({{"dry_run", true}, {"keep_jobs_days", 99}}).json().value();
    EXPECT_EQ(named["jobs"][0]["id"], job);
    EXPECT_GT(named["events"], 0);
    EXPECT_EQ(get("/v1/jobs/" + job + "/events").at("items").size(), named["events"]);
    EXPECT_EQ(prune(Json::object()).json()->at("jobs"), Json::array());
    EXPECT_EQ(get("/v1/jobs/" + job + "/events").at("items").size(), 0U) << "after 90 days";
    EXPECT_EQ(prune({{"keep_jobs_days", 99}}).json()->at("jobs").size(), 1U);
    EXPECT_EQ(client().call(Method::kGet, "/v1/jobs/" + job)->status, 404);
    EXPECT_EQ(prune({{"keep_jobs_days", 0}}).status, 422);
    EXPECT_EQ(client(auth::Role::kOperator).call(Method::kPost, "/v1/prune", "{}")->status, 403);
}

}  // namespace
}  // namespace atl::dispatch
