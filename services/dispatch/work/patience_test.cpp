// What a job waits for, and for how long.
#include <gtest/gtest.h>

#include "services/dispatch/testing/job_lifecycle_fixture.h"
#include "shared/http/client/client.h"

namespace atl::dispatch {
namespace {

using json::Json;

class PatienceTest : public JobLifecycleTest {
  protected:
    // The next try is made at once instead of after ever longer pauses.
    void hurry() {
        auto connection = connect();
        EXPECT_TRUE(connection.query("UPDATE facilities SET retry_at = NULL").ok());
        EXPECT_TRUE(connection.query("UPDATE tasks SET next_step_at = now() WHERE lease_until < now()").ok());
    }
};

TEST_F(PatienceTest, ASiteThatIsGoneCostsTheOthersNoMoreThanTheGrace) {
    begin();
    const auto ssh_config = directory_.path() / "ssh_config";
    ASSERT_TRUE(write_file_atomic(ssh_config, "Host gone\n  ProxyCommand false\n").ok());
    const Json gone = {{"name", "gone"},
                       {"transport", {{"kind", "ssh"}, {"host", "gone"}, {"config_file", ssh_config.string()}}},
                       {"batch", {{"kind", "local"}}},
                       {"work_dir", "/work"}};
    ASSERT_TRUE(client().post_json("/v1/facilities", gone).ok());
    EXPECT_EQ(get("/v1/facilities/gone").at("silent_since"), nullptr) << "nobody has asked it";
    catalog_->add_version("it", 1, "gone");
    Json request = job_request(3);
    request["participants"].push_back({{"facility", "gone"}, {"dataset", "it"}, {"dataset_version", 1}});
    request["quorum"] = 2;
    request["grace_s"] = request["evaluation_grace_s"] = 1;  // not the deadline, which is a week
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    const Json facility = get("/v1/facilities/gone");
    EXPECT_TRUE(facility.at("silent_since").is_string()) << facility;
    EXPECT_EQ(get("/v1/facilities/leonardo").at("silent_since"), nullptr);
    int given_up = 0;
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    for (const Json& round : rounds)
        for (const Json& task : round.at("tasks")) {
            if (task.at("facility") != "gone") continue;
            ++given_up;
            const std::string error = task.at("error");
            EXPECT_NE(error.find("the site has not answered"), std::string::npos) << task.dump(2);
            EXPECT_TRUE(eventually([&] {
                const pg::Rows row =
                    connect()
                        .query("SELECT state FROM tasks WHERE id = $1", {task.at("id").get<std::string>()})
                        .value();
                return row.text(0, "state") == "cancelled";
            })) << "without the site's help: nothing was submitted there";
        }
    EXPECT_EQ(given_up, 3 + 4) << "trainings and evaluations";
    EXPECT_EQ(count(event_types(job), "atoll.task.cancelled.v1"), 7U);
    EXPECT_EQ(aggregation_->closed_rounds().at(2).at("updates").size(), 2U);
}

TEST_F(PatienceTest, TroubleWhileAModelIsStagedCostsNoAttempt) {
    begin();
    set("stage.breaks", "the service answered 500");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(eventually([&] { return hurry(), count(event_types(job), "atoll.task.waiting.v1") == 2; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(get("/v1/facilities/leonardo").at("silent_since"), nullptr) << "it is not the site that is away";
    std::filesystem::remove(fake("stage.breaks"));
    EXPECT_TRUE(eventually([&] { return hurry(), state_of(job) == "completed"; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(trainings().size(), 2U);
}

TEST_F(PatienceTest, AVersionThatTheStoreDoesNotHaveEndsTheAttempts) {
    begin();
    set("stage.exits", "66");
    const std::string job = submit(job_request(1));
    EXPECT_TRUE(eventually([&] { return hurry(), state_of(job) == "failed"; })) << get("/v1/jobs/" + job).dump(2);
    EXPECT_NE(error_of(job).find("staging"), std::string::npos) << error_of(job);
}

TEST_F(PatienceTest, APreparationThatCannotBeRegisteredYetIsNotMadeAgain) {
    begin();
    set("tokenize.waits");
    const std::string path = prepare("running");
    catalog_->set_refusal(500);
    std::filesystem::remove(fake("tokenize.waits"));
    ASSERT_TRUE(eventually([&] {
        hurry();
        return connect().query("SELECT 1 FROM attempts WHERE step = 'collecting' AND error <> ''")->size() == 1;
    }));
    ASSERT_TRUE(eventually([&] {
        hurry();
        return connect().query("SELECT 1 FROM attempts WHERE (progress->>'step_failures')::int > 6")->size() == 1;
    })) << "it would have failed at the fifth";
    EXPECT_NE(get(path).at("error"), "") << "whoever looks sees what it waits for";
    catalog_->set_refusal(0);
    EXPECT_TRUE(eventually([&] { return hurry(), get(path).at("state") == "done"; })) << get(path).dump(2);
    EXPECT_EQ(get(path).at("attempt"), 1);
}

TEST_F(PatienceTest, WhatWasTrainedIsHandedInOnceTroubleIsOver) {
    begin();
    auto connection = connect();
    // Both updates are tried again and again, and each says that it waits for this.
    const auto waits_for = [&](const std::string& why) {
        const auto failures = [&] {
            const auto rows = connection.query(
                "SELECT count(*) AS n, min((progress->>'step_failures')::bigint)::bigint AS failures FROM attempts"
                " WHERE step = 'collecting' AND error LIKE '%' || $1 || '%'",
                {why});
            return rows->integer(0, "n") == 2 ? rows->integer(0, "failures") : 0;
        };
        std::int64_t before = 0;
        return eventually([&] {
            hurry();
            if (before == 0) before = failures();
            return before > 0 && failures() > before;
        });
    };
    set("push.breaks", "the disk cannot be read");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(waits_for("the disk cannot be read")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    set("push.breaks", "bad interpreter");
    ASSERT_TRUE(waits_for("bad interpreter"));
    std::filesystem::remove(fake("push.breaks"));
    set("push.refuses", R"({"refused":false,"error":{"code":"permission-denied","detail":"this token may not"}})");
    ASSERT_TRUE(waits_for("this token may not"));
    catalog_->set_refusal(500);
    std::filesystem::remove(fake("push.refuses"));
    for (const int status : {500, 401, 403, 404, 400, 429, 507}) {
        catalog_->set_refusal(status);
        ASSERT_TRUE(waits_for("the service answered " + std::to_string(status))) << status;
    }
    EXPECT_EQ(state_of(job), "running");
    catalog_->set_refusal(0);
    EXPECT_TRUE(eventually([&] { return hurry(), state_of(job) == "completed"; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(trainings().size(), 2U) << "each site trained once";
}

}  // namespace
}  // namespace atl::dispatch
