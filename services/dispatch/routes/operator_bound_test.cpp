#include "services/dispatch/testing/job_lifecycle_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

TEST_F(JobLifecycleTest, OneOperatorHasSoManyJobsAndPreparationsThatHaveNotEnded) {
    operator_active_max_ = 2;
    begin();
    for (const char* name : {"leonardo", "karolina"}) set_allowed(name, "*");
    catalog_->set_dataset_owner("bob");
    set("stage.waits");
    int jobs = 0;
    const auto submit_as = [&](http::Client client) {
        Json request = job_request(1);
        request["output_model"] = "m" + std::to_string(++jobs);
        return client.call(Method::kPost, "/v1/jobs", request.dump()).value();
    };
    const auto first = submit_as(client_of("bob"));
    ASSERT_EQ(first.status, 201) << first.body;
    const Json preparation = {{"facility", "karolina"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    const auto prepare_as_bob = [&] {
        return client_of("bob").call(Method::kPost, "/v1/preparations", preparation.dump())->status;
    };
    ASSERT_EQ(prepare_as_bob(), 202);
    const auto refused = submit_as(client_of("bob"));
    EXPECT_EQ(refused.status, 429);
    EXPECT_NE(refused.body.find("operator_active_max"), std::string::npos) << refused.body;
    EXPECT_EQ(prepare_as_bob(), 429);
    EXPECT_EQ(submit_as(client_of("vic")).status, 201) << "it is each one's own";
    EXPECT_EQ(submit_as(client()).status, 201) << "admins have no such bound";
    const std::string job = "/v1/jobs/" + first.json().value().at("id").get<std::string>();
    const auto order = [&](const std::string& verb) {
        return client_of("bob").call(Method::kPost, job + verb, "{}")->status;
    };
    EXPECT_EQ(order("/pause"), 200);
    EXPECT_EQ(order("/resume"), 200) << "it has its place";
    EXPECT_EQ(order("/cancel"), 200);
    std::filesystem::remove(fake("stage.waits"));
    EXPECT_TRUE(eventually([&] { return prepare_as_bob() == 202; })) << "once both have ended and are cleaned up after";
}

TEST_F(JobLifecycleTest, WhatASiteTakesLongToRemoveTakesNoPlace) {
    operator_active_max_ = 1;
    begin();
    for (const char* name : {"leonardo", "karolina"}) set_allowed(name, "*");
    const auto submit_as_bob = [&](const std::string& model) {
        Json request = job_request(1);
        request["output_model"] = model;
        return client_of("bob").call(Method::kPost, "/v1/jobs", request.dump()).value();
    };
    const auto first = submit_as_bob("m1");
    ASSERT_EQ(first.status, 201) << first.body;
    const std::string id = first.json().value().at("id");
    ASSERT_EQ(client_of("bob").call(Method::kPost, "/v1/jobs/" + id + "/cancel", "{}")->status, 200);
    ASSERT_TRUE(eventually([&] {
        return connect()
            .query("SELECT 1 FROM tasks WHERE job_id = $1 AND state IN ('pending', 'running')", {id})
            .value()
            .empty();
    }));
    ASSERT_TRUE(
        connect()
            .query("INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max, next_step_at)"
                   " VALUES ('lasting', $1, 1, 'clean', 'leonardo', '{}', 'pending', 1, 'infinity')",
                   {id})
            .ok());
    EXPECT_EQ(submit_as_bob("m2").status, 429);
    ASSERT_TRUE(
        connect().query("UPDATE tasks SET created_at = now() - interval '11 minutes' WHERE id = 'lasting'").ok());
    EXPECT_EQ(submit_as_bob("m2").status, 201);
}

}  // namespace
}  // namespace atl::dispatch
