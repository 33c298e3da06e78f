#include <gtest/gtest.h>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

// Answers with something in them against the OpenAPI document; get() looks at those of all other tests.
TEST_F(DispatchServiceTest, EveryReadingRouteAnswersAsTheDocumentSays) {
    const Json preparation = {{"facility", "karolina"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    const std::string path = "/v1/preparations";
    const auto made = client().call(Method::kPost, path, preparation.dump()).value();
    EXPECT_EQ(answers_.faults(Method::kPost, path, made), std::vector<std::string>());
    const std::string prepared = made.json()->at("id");
    EXPECT_TRUE(eventually([&] { return get("/v1/preparations/" + prepared).at("state") == "done"; }));
    Json request = job_request(1);
    request["evaluation"] = {{"models", "all"}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed"));
    auto connection = connect();
    ASSERT_TRUE(connection
                    .query("INSERT INTO dead_letters (consumer, event_id, topic, key, value, error) VALUES ('c', 'e1', "
                           "'t', 'k', '{}', 'why')")
                    .ok());
    ASSERT_TRUE(client().post_json("/v1/tokens", {{"subject", "ada"}, {"role", "viewer"}}).ok());
    for (const std::string& list :
         {std::string("/v1/facilities"), std::string("/v1/preparations"), std::string("/v1/jobs"),
          "/v1/jobs/" + job + "/rounds", "/v1/jobs/" + job + "/events", "/v1/jobs/" + job + "/logs?format=json",
          std::string("/v1/dead-letters"), std::string("/v1/tokens")})
        EXPECT_FALSE(get(list).at("items").empty()) << list;
    get("/v1/facilities/leonardo");
    const std::string check = "/v1/facilities/leonardo/check-jobs/abcd1234";
    EXPECT_EQ(client().call(Method::kPut, check, "{}")->status, 200);
    get(check);
    aggregation_->set_losing(1);
    request["name"] = "waits";
    const std::string waiting = submit(request);
    ASSERT_TRUE(eventually([&] { return aggregation_->closed_rounds().size() == 2; }));
    EXPECT_EQ(get("/v1/jobs/" + waiting + "/rounds/1/updates"), aggregation_->closed_rounds()[1]);
    const std::string task = get("/v1/jobs/" + job + "/rounds").at("items").at(1).at("tasks").at(0).at("id");
    for (const std::string& text : {"/v1/jobs/" + job + "/logs", "/v1/jobs/" + job + "/tasks/" + task + "/script"})
        EXPECT_EQ(answers_.faults(Method::kGet, text, client().call(Method::kGet, text).value()),
                  std::vector<std::string>());
    EXPECT_EQ(answers_.unread(), std::vector<std::string>());
}

// Who owns what is told by the name alone.
TEST_F(DispatchServiceTest, TheNamesOfTheStacksOwnTokensAreGivenNoOtherRole) {
    const auto status = [&](const char* subject, const char* role) {
        return client().call(Method::kPost, "/v1/tokens", Json{{"subject", subject}, {"role", role}}.dump())->status;
    };
    for (const auto& [subject, role] : {std::pair{"admin", "operator"},
                                        {"admin", "viewer"},
                                        {"operator", "admin"},
                                        {"dispatch", "operator"},
                                        {"aggregation", "viewer"}})
        EXPECT_EQ(status(subject, role), 422) << subject << " " << role;
    EXPECT_EQ(status("admin", "admin"), 201);
    EXPECT_EQ(status("operator", "operator"), 201);
}

// What is not known yet is left out, but for the attempt's number; null stands nowhere else.
TEST_F(DispatchServiceTest, ATaskIsShownAsTheDocumentSaysWhateverIsKnownOfIt) {
    ASSERT_TRUE(connect().query("UPDATE facilities SET retry_at = now() + interval '1 hour'").ok()) << "nobody works";
    ASSERT_TRUE(write_file_atomic(fake("train.waits"), "").ok());
    const std::string job = submit(job_request(1));
    const auto training = [&] {
        const Json round = get("/v1/jobs/" + job + "/rounds").at("items").at(1);
        Json found;
        for (const Json& task : round.at("tasks")) {
            if (task.at("kind") == "train" && task.at("facility") == "leonardo") found = task;
            for (const auto& [key, value] : task.items()) EXPECT_TRUE(key == "attempt" || !value.is_null()) << task;
        }
        return found;
    };
    const Json pending = training();
    EXPECT_TRUE(pending.at("attempt").is_null()) << pending;
    EXPECT_FALSE(pending.contains("step")) << pending;
    ASSERT_TRUE(connect().query("UPDATE facilities SET retry_at = NULL").ok());
    ASSERT_TRUE(eventually([&] { return training().value("step", "") == "running"; }));
    const Json running = training();
    EXPECT_FALSE(running.contains("exit_code") || running.contains("progress") || running.contains("version"))
        << running;
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(reaches(job, "completed"));
    const Json done = training();
    EXPECT_EQ(done.at("exit_code"), 0);
    EXPECT_EQ(done.at("progress").at("step"), 3);
    EXPECT_EQ(done.at("tokens"), 6144);
}

}  // namespace
}  // namespace atl::dispatch
