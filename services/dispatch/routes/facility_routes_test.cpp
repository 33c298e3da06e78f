#include <gtest/gtest.h>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

// A facility "gone" that nothing reaches, where "it" lies.
class GoneFacilityTest : public DispatchServiceTest {
  protected:
    void SetUp() override {
        DispatchServiceTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        ssh_config_ = (directory_.path() / "ssh_config").string();
        ASSERT_TRUE(write_file_atomic(ssh_config_, "Host *\n  ProxyCommand false\n").ok());
        const Json gone = {{"name", "gone"},
                           {"transport", {{"kind", "ssh"}, {"host", "login01"}, {"config_file", ssh_config_}}},
                           {"batch", {{"kind", "local"}}},
                           {"work_dir", "/work"}};
        ASSERT_EQ(post("/v1/facilities", gone).status, 201);
        catalog_->add_version("it", 2, "gone");
    }
    std::string submit_there() {
        Json request = job_request(1);
        request["participants"] = {{{"facility", "gone"}, {"dataset", "it"}}};
        const std::string job = submit(request);
        EXPECT_TRUE(eventually([&] { return get("/v1/facilities/gone").at("silent_since").is_string(); }));
        return job;
    }
    http::ClientResponse change(const Json& patch, const std::string& query = "") {
        return client()
            .call(Method::kPatch, "/v1/facilities/gone" + query, patch.dump(), {{{"If-Match", "*"}}, {}})
            .value();
    }
    // Of the tasks there that are in this state.
    std::string errors(const std::string& state) {
        const pg::Rows rows = connect()
                                  .query(
                                      "SELECT coalesce(string_agg(kind || ' ' || error, '; ' ORDER BY kind), '') AS "
                                      "errors FROM tasks WHERE facility = 'gone' AND state = $1",
                                      {state})
                                  .value();
        return rows.text(0, "errors");
    }

    std::string ssh_config_;
};

TEST_F(GoneFacilityTest, ACheckSaysWhatTheTasksWaitForAndWhetherTheyGoOn) {
    const auto last_row_of = [&](const std::string& facility) {
        const std::string waits =
            "UPDATE facilities SET waiting_since = now(), waiting_reason = 'No space left on device', "
            "retry_at = now() + interval '1 hour' WHERE name = $1";
        EXPECT_TRUE(connect().query(waits, {facility}).ok());
        const auto answer = post("/v1/facilities/" + facility + "/check", Json::object());
        EXPECT_EQ(answer.status, 200) << answer.body;
        return answer.json()->at("checks").back();
    };
    const auto mend_of = [&](const Json& row) {
        EXPECT_EQ(row.at("name"), "tasks") << row;
        EXPECT_EQ(row.at("state"), "warn");
        EXPECT_NE(row.at("seen").get<std::string>().find("No space left on device"), std::string::npos) << row;
        return row.at("mend").get<std::string>();
    };
    submit_there();
    EXPECT_EQ(mend_of(last_row_of("gone")), "fix the failures above; the tasks then continue on their own");
    EXPECT_NE(last_row_of("leonardo").at("name"), "tasks") << "it has none";
    Json request = job_request(1);  // waits with the facility
    request["output_model"] = "another";
    submit(request);
    EXPECT_EQ(mend_of(last_row_of("leonardo")), "nothing: they are tried again now");
}

TEST_F(GoneFacilityTest, AnotherWayToTheSamePlaceCanBeNamedAtAnyTime) {
    submit_there();
    const auto moved = change({{"transport", {{"host", "login02"}}}});
    EXPECT_EQ(moved.status, 200) << moved.body;
    EXPECT_EQ(get("/v1/facilities/gone").at("transport").at("host"), "login02");
    EXPECT_EQ(change({{"transport", {{"kind", "local"}, {"host", nullptr}, {"config_file", nullptr}}}}).status, 409);
    const Json taken = {{"name", "other"},
                        {"transport", {{"kind", "ssh"}, {"host", "login03"}}},
                        {"batch", {{"kind", "local"}}},
                        {"work_dir", "/work"}};
    ASSERT_EQ(post("/v1/facilities", taken).status, 201);
    EXPECT_EQ(change({{"transport", {{"host", "login03"}}}}).status, 409) << "that is another facility's place";
}

TEST_F(GoneFacilityTest, WhatWaitsForItIsGivenUpWhereSomebodySaysSo) {
    const std::string job = submit_there();
    const Json preparation = {{"facility", "gone"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    const Json prepared = client().post_json("/v1/preparations", preparation).value();
    const Json elsewhere = {{"work_dir", "/elsewhere"}};
    EXPECT_EQ(change(elsewhere, "?give_up_tasks=true").status, 409) << "the job is under way";
    EXPECT_EQ(change(elsewhere, "?give_up_tasks=maybe").status, 422);
    // One attempt was submitted before the site went away.
    ASSERT_TRUE(eventually([&] {
        return connect()
                   .query(
                       "UPDATE attempts a SET step = 'running' FROM tasks t WHERE t.id = a.task_id AND t.kind = "
                       "'train' AND t.lease_until < now() AND a.step <> 'running' RETURNING 1")
                   ->size() == 1;
    }));
    EXPECT_EQ(client().call(Method::kPost, "/v1/jobs/" + job + "/cancel", "{}")->status, 200);
    const auto refused = change(elsewhere);
    EXPECT_EQ(refused.status, 409);
    EXPECT_NE(refused.body.find("--give-up-tasks"), std::string::npos) << refused.body;
    EXPECT_TRUE(eventually([&] { return errors("cancelled").starts_with("evaluate"); })) << "nothing was submitted";
    const auto moved = change(elsewhere, "?give_up_tasks=true");
    EXPECT_EQ(moved.status, 200) << moved.body;
    EXPECT_EQ(get("/v1/facilities/gone").at("work_dir"), "/elsewhere");
    EXPECT_EQ(errors("running") + errors("pending"), "");
    for (const std::string said : {"clean given up by tester", "train given up by tester", "may still run"})
        EXPECT_NE(errors("cancelled").find(said), std::string::npos) << errors("cancelled");
    EXPECT_EQ(get("/v1/jobs/" + job).at("tasks").at("train"), (Json{{"cancelled", 1}}));
    EXPECT_EQ(get("/v1/preparations/" + prepared.at("id").get<std::string>()).at("state"), "failed");
    EXPECT_EQ(connect().query("SELECT 1 FROM attempts WHERE step NOT IN ('cancelled', 'failed')")->size(), 0);
}

TEST_F(GoneFacilityTest, AHostKeyIsReadFromTheHostAndPinnedInTheRecord) {
    const auto unread = post("/v1/facilities/gone/host-key", Json::object());
    EXPECT_EQ(unread.status, 503) << unread.body;
    EXPECT_NE(unread.body.find("no connection to login01"), std::string::npos) << unread.body;
    EXPECT_EQ(post("/v1/facilities/leonardo/host-key", Json::object()).status, 409);
    EXPECT_EQ(get("/v1/facilities/gone").at("host_key_fingerprints"), Json::array());
    const Json check = post("/v1/facilities/gone/check", Json::object()).json().value();
    EXPECT_EQ(check.at("checks").at(0).at("state"), "fail") << check;
    EXPECT_EQ(check.at("checks").at(1).at("state"), "skipped") << check;
    EXPECT_EQ(check.at("ok"), false) << check;
    const std::string key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJiQ/swRvuGsw1MFv0Ry5qRll8WwiEUr2gGFZl+NMCSo";
    const std::string fingerprint = "ssh-ed25519 SHA256:zqHTSY+h4adymyqK93yRQeC18UQMKTcHsSJ/4/y9iiE";
    EXPECT_EQ(change({{"transport", {{"host_key", key + " login01"}}}}).status, 200);
    EXPECT_EQ(get("/v1/facilities/gone").at("transport").at("host_key"), key);
    EXPECT_EQ(get("/v1/facilities/gone").at("host_key_fingerprints"), Json({fingerprint}));
}

TEST_F(GoneFacilityTest, AnImageIsPutByWhoMayChangeTheFacility) {
    const std::string bytes(3000, 'x');
    const std::string image = (directory_.path() / "atoll.sif").string();
    const auto put = [&](auth::Role role, const std::string& query, const std::string& part) {
        const auto answer =
            client(role).call(Method::kPut, "/v1/facilities/leonardo/image?path=" + image + query, part).value();
        EXPECT_EQ(answers_.faults(Method::kPut, "/v1/facilities/leonardo/image", answer), std::vector<std::string>());
        return answer;
    };
    const std::string whole = "&bytes=3000&sha256=" + digest::sha256(bytes);
    EXPECT_EQ(put(auth::Role::kAdmin, whole, bytes.substr(0, 1000)).json()->at("bytes_done"), 1000);
    EXPECT_EQ(put(auth::Role::kOperator, whole, "").status, 403) << "it is on the coordinator's own machine";
    EXPECT_EQ(put(auth::Role::kAdmin, whole + "&offset=1000", bytes).status, 422) << "longer than the image";
    EXPECT_EQ(put(auth::Role::kAdmin, "&bytes=3000", "").status, 422);
    EXPECT_EQ(put(auth::Role::kAdmin, "&sha256=" + digest::sha256(bytes), "").status, 422);
    EXPECT_EQ(put(auth::Role::kAdmin, whole + "&offset=1000", bytes.substr(1000)).status, 200);
    EXPECT_TRUE(eventually([&] { return put(auth::Role::kAdmin, whole, "").json()->at("in_place") == Json(true); }));
    EXPECT_EQ(read_file(image).value(), bytes);
    EXPECT_TRUE(get("/v1/facilities/leonardo").value("image", Json()).is_null())
        << "to pin it is a change of the record";
}

TEST_F(GoneFacilityTest, APersonIsToldHowToLogIn) {
    const auto told = post("/v1/facilities/gone/login", Json::object());
    ASSERT_EQ(told.status, 200) << told.body;
    const Json command = told.json()->at("command");
    EXPECT_EQ(command.at(0), "ssh");
    EXPECT_EQ(command.back(), "login01");
    EXPECT_NE(told.body.find((directory_.path() / "ssh").string()), std::string::npos) << told.body;
    EXPECT_EQ(post("/v1/facilities/leonardo/login", Json::object()).status, 409);
}

TEST_F(DispatchServiceTest, DirectoriesOfTasksThatNobodyKnowsAreTold) {
    const auto leftovers = [&] {
        const Json checks = post("/v1/facilities/leonardo/check", Json::object()).json()->at("checks");
        for (const Json& row : checks)
            if (row.at("name") == "leftovers") return row;
        return Json();
    };
    const std::filesystem::path tasks =
        get("/v1/facilities/leonardo").at("work_dir").get<std::string>() + std::string("/tasks");
    std::filesystem::create_directories(tasks / "check-0123456789");
    ASSERT_TRUE(
        connect()
            .script("INSERT INTO preparations (id, spec, created_by) VALUES ('p', '{}', 'ada');"
                    "INSERT INTO tasks (id, preparation_id, round, kind, facility, params, state, attempts_max) "
                    "VALUES ('known1', 'p', 0, 'prepare', 'leonardo', '{}', 'done', 3)")
            .ok());
    std::filesystem::create_directories(tasks / "known1" / "1");
    EXPECT_EQ(leftovers(), Json());
    for (const char* name : {"lost1", "lost2", "lost3", "lost4"}) {
        std::filesystem::create_directories(tasks / name / "1");
        std::filesystem::last_write_time(tasks / name, std::filesystem::file_time_type::clock::now() -
                                                           std::chrono::hours(24 * (10 - (name[4] - '0'))));
    }
    const Json row = leftovers();
    ASSERT_FALSE(row.is_null());
    EXPECT_EQ(row.at("state"), "warn");
    EXPECT_EQ(row.at("seen"),
              "4 directories of tasks that this coordinator does not know: lost1, lost2, lost3 and 1 more");
    EXPECT_NE(row.at("mend").get<std::string>().find("rm -r -- tasks/lost1 tasks/lost2 tasks/lost3`"),
              std::string::npos)
        << row;
    EXPECT_TRUE(post("/v1/facilities/leonardo/check", Json::object()).json()->at("ok")) << "nothing is broken by them";
}

TEST_F(DispatchServiceTest, StateKeptForJobsThatHaveEndedOrThatNobodyKnowsIsTold) {
    const auto leftovers = [&] {
        const Json checks = post("/v1/facilities/leonardo/check", Json::object()).json()->at("checks");
        for (const Json& row : checks)
            if (row.at("name") == "leftovers") return row;
        return Json();
    };
    const std::filesystem::path kept =
        get("/v1/facilities/leonardo").at("work_dir").get<std::string>() + std::string("/kept");
    const auto keep = [&](const std::string& job) {
        std::filesystem::create_directories(kept / job / "round1.state");
        std::filesystem::last_write_time(kept / job, std::filesystem::file_time_type::clock::now() -
                                                         std::chrono::hours(job.size()));  // a longer name is older
    };
    const auto add_job = [&](const std::string& job, const std::string& state) {
        ASSERT_TRUE(connect()
                        .query("INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by) "
                               "VALUES ($1, $1, '{}', 'd', $2, 1, 'ada')",
                               {job, state})
                        .ok());
        keep(job);
    };
    add_job("paused", "paused");
    EXPECT_EQ(leftovers(), Json()) << "it goes on";
    add_job("failed", "failed");
    ASSERT_TRUE(connect()
                    .script("INSERT INTO tasks (id, job_id, round, kind, facility, params, state, attempts_max, "
                            "next_step_at) VALUES ('clean1', 'failed', 1, 'clean', 'leonardo', '{}', 'pending', 3, "
                            "now() + interval '1 hour')")
                    .ok());
    EXPECT_EQ(leftovers(), Json()) << "it is still to be cleaned up";
    ASSERT_TRUE(connect().script("UPDATE tasks SET state = 'done' WHERE id = 'clean1'").ok());
    EXPECT_EQ(leftovers().at("seen"),
              "1 state kept for a job that has ended or that this coordinator does not know: failed");
    keep("unknownjob");
    std::filesystem::create_directories(kept.parent_path() / "tasks" / "lost" / "1");
    const Json row = leftovers();
    EXPECT_EQ(row.at("state"), "warn");
    EXPECT_EQ(row.at("seen"),
              "1 directory of a task that this coordinator does not know: lost; 2 states kept for jobs that have ended "
              "or that this coordinator does not know: unknownjob, failed");
    EXPECT_NE(row.at("mend").get<std::string>().find(" && rm -r -- tasks/lost kept/unknownjob kept/failed`"),
              std::string::npos)
        << row;
}

TEST_F(DispatchServiceTest, WhatAFacilitysTrainerComputesOnIsForgottenWhereAnotherMayRun) {
    ASSERT_TRUE(write_file_atomic(fake("report.says"), R"({"version":"1","devices":["cpu"],"gpus":[]})").ok());
    const auto devices_after = [&](const Json& patch) {
        EXPECT_EQ(post("/v1/facilities/leonardo/check", Json::object()).status, 200);
        EXPECT_EQ(get("/v1/facilities/leonardo").at("devices"), Json({"cpu"}));
        const auto answer =
            client().call(Method::kPatch, "/v1/facilities/leonardo", patch.dump(), {{{"If-Match", "*"}}, {}});
        EXPECT_EQ(answer->status, 200) << answer->body;
        return get("/v1/facilities/leonardo").at("devices");
    };
    EXPECT_EQ(devices_after({{"environment", {{"HTTPS_PROXY", "http://proxy"}}}}), Json({"cpu"}));
    EXPECT_EQ(devices_after({{"batch", {{"slots", 3}}}}), Json({"cpu"}));
    EXPECT_EQ(devices_after({{"launcher", "srun -n {ranks}"}}), nullptr);
    EXPECT_EQ(devices_after({{"programs", fake("").parent_path().string()}}), nullptr);
}

}  // namespace
}  // namespace atl::dispatch
