#include <gtest/gtest.h>

#include <functional>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/aggregate/strategy_table.h"
#include "shared/service/testing/openapi_check.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

class RoutesTest : public DispatchServiceTest {
  protected:
    http::Client client_with(const std::string& token) {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.token = token;
        return http::Client(options);
    }
    std::int64_t count(const std::string& table) {
        auto connection = connect();
        return connection.query("SELECT count(*) AS n FROM " + table)->integer(0, "n");
    }
};

TEST_F(RoutesTest, FacilitiesAreMadeReadChangedAndRemoved) {
    auto admin = client();
    const auto again = post("/v1/facilities", get("/v1/facilities/leonardo").at("transport"));
    EXPECT_EQ(again.status, 422);
    const auto one = admin.call(Method::kGet, "/v1/facilities/leonardo").value();
    EXPECT_EQ(one.headers.at("etag"), "\"1\"");
    const std::string patch = R"({"batch": {"slots": 7}})";
    EXPECT_EQ(admin.call(Method::kPatch, "/v1/facilities/leonardo", patch, {{{"If-Match", "\"0\""}}, {}})->status, 412);
    const auto patched = admin.call(Method::kPatch, "/v1/facilities/leonardo", patch, {{{"If-Match", "\"1\""}}, {}});
    EXPECT_EQ(patched->status, 200) << patched->body;
    EXPECT_EQ(patched->headers.at("etag"), "\"2\"");
    EXPECT_EQ(get("/v1/facilities/leonardo").at("batch").at("slots"), 7);
    EXPECT_EQ(get("/v1/facilities?limit=1").at("next"), "karolina");
    EXPECT_EQ(admin.call(Method::kDelete, "/v1/facilities/leonardo")->status, 204);
    EXPECT_EQ(admin.call(Method::kGet, "/v1/facilities/leonardo")->status, 404);
}

TEST_F(RoutesTest, AFacilityWithTasksUnderWayCannotMove) {
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    submit(job_request(1));
    const auto patch = [&](const Json& body) {
        return client().call(Method::kPatch, "/v1/facilities/leonardo", body.dump(), {{{"If-Match", "*"}}, {}}).value();
    };
    for (const auto& [field, body] :
         std::vector<std::pair<std::string, Json>>{{"transport", {{"transport", {{"kind", "ssh"}, {"host", "login"}}}}},
                                                   {"batch.slots", {{"batch", {{"slots", 5}}}}},
                                                   {"work_dir", {{"work_dir", "/elsewhere"}}}}) {
        const auto answer = patch(body);
        EXPECT_EQ(answer.status, 409) << answer.body;
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), field);
    }
    EXPECT_EQ(get("/v1/facilities/leonardo").at("work_dir"), work_dir("leonardo").string());
    EXPECT_EQ(patch({{"environment", {{"A", "1"}}}}).status, 200) << "what new attempts use may change";
    std::filesystem::remove(fake("stage.waits"));
}

TEST_F(RoutesTest, TheSameFacilityTwiceConflicts) {
    Json facility = get("/v1/facilities/leonardo");
    for (const char* read_only : {"created_at", "updated_at", "devices", "limits", "host_key_fingerprints",
                                  "silent_since", "task_waits", "template_replaces", "waiting"})
        facility.erase(read_only);
    EXPECT_EQ(post("/v1/facilities", facility).status, 409);
}

TEST_F(RoutesTest, TwoFacilitiesCannotHaveOnePlace) {
    const auto facility = [&](const std::string& name, const Json& transport, const std::string& directory) {
        return Json{{"name", name}, {"transport", transport}, {"batch", {{"kind", "local"}}}, {"work_dir", directory}};
    };
    const Json local = {{"kind", "local"}};
    const std::string taken = work_dir("leonardo").string();
    for (const std::string& same : {taken, taken + "/", work_dir("x/../leonardo").string()}) {
        const auto answer = post("/v1/facilities", facility("third", local, same));
        EXPECT_EQ(answer.status, 409) << same;
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), "work_dir");
        EXPECT_NE(answer.body.find("leonardo"), std::string::npos) << "the other one is named: " << answer.body;
        EXPECT_FALSE(answer.json().error().message.starts_with("work_dir")) << answer.body;
    }
    EXPECT_EQ(count("facilities"), 2);
    EXPECT_EQ(post("/v1/facilities", facility("third", {{"kind", "ssh"}, {"host", "login"}}, taken)).status, 201);
    EXPECT_EQ(post("/v1/facilities", facility("fourth", {{"kind", "ssh"}, {"host", "login"}}, taken)).status, 409);
    EXPECT_EQ(post("/v1/facilities", facility("fourth", {{"kind", "ssh"}, {"host", "other"}}, taken)).status, 201);
    const std::string patch = Json{{"work_dir", taken}}.dump();
    EXPECT_EQ(client().call(Method::kPatch, "/v1/facilities/karolina", patch, {{{"If-Match", "*"}}, {}})->status, 409);
    EXPECT_EQ(get("/v1/facilities/karolina").at("work_dir"), work_dir("karolina").string());
}

TEST_F(RoutesTest, ALauncherWithoutRanksIsRefused) {
    Json facility = {{"name", "third"},
                     {"transport", {{"kind", "local"}}},
                     {"batch", {{"kind", "local"}}},
                     {"work_dir", work_dir("third").string()},
                     {"launcher", "srun"}};
    const auto answer = post("/v1/facilities", facility);
    EXPECT_EQ(answer.status, 422) << answer.body;
    EXPECT_EQ(Json::parse(answer.body).value("field", ""), "launcher");
    const std::string patch = Json{{"launcher", "srun"}}.dump();
    EXPECT_EQ(client().call(Method::kPatch, "/v1/facilities/karolina", patch, {{{"If-Match", "*"}}, {}})->status, 422);
    facility["launcher"] = "mpirun";
    EXPECT_EQ(post("/v1/facilities", facility).status, 201);
    EXPECT_EQ(get("/v1/facilities/third").at("launcher"), "");
}

TEST_F(RoutesTest, ALocalFacilityHasItsProgramsWhereItSays) {
    const std::string wrong = work_dir("bin").string();
    Json facility = {{"name", "third"},
                     {"transport", {{"kind", "local"}}},
                     {"batch", {{"kind", "local"}}},
                     {"work_dir", work_dir("third").string()},
                     {"programs", wrong}};
    const auto change = [&](const std::string& name, const Json& patch) {
        return client().call(Method::kPatch, "/v1/facilities/" + name, patch.dump(), {{{"If-Match", "*"}}, {}}).value();
    };
    for (const auto& answer : {post("/v1/facilities", facility), change("leonardo", {{"programs", wrong}})}) {
        EXPECT_EQ(answer.status, 422) << answer.body;
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), "programs");
        EXPECT_NE(answer.body.find(wrong), std::string::npos) << answer.body;
    }
    EXPECT_EQ(count("facilities"), 2);
    EXPECT_EQ(get("/v1/facilities/leonardo").at("programs"), "");
    facility["transport"] = {{"kind", "ssh"}, {"host", "login"}};
    EXPECT_EQ(post("/v1/facilities", facility).status, 201) << "nobody looks at a remote site for this";
    const Json moved = {{"transport", {{"kind", "local"}, {"host", nullptr}}}};
    EXPECT_EQ(change("third", moved).status, 422) << "now it can be seen";
    EXPECT_EQ(change("leonardo", {{"programs", fake("").parent_path().string()}}).status, 200);
    std::filesystem::remove(fake("atoll-trainer"));
    EXPECT_EQ(change("leonardo", {{"batch", {{"slots", 3}}}}).status, 200) << "what is not touched is not looked at";
}

TEST_F(RoutesTest, PreparationsAreListedNewestFirst) {
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    std::vector<std::string> made;
    for (int i = 0; i < 3; ++i)
        made.push_back(client()
                           .post_json("/v1/preparations", {{"facility", "leonardo"},
                                                           {"dataset", "it"},
                                                           {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                                                           {"input", "raw/" + std::to_string(i) + ".jsonl"},
                                                           {"seq_len", 128}})
                           .value()
                           .at("id"));
    const Json first = get("/v1/preparations?limit=2");
    ASSERT_EQ(first.at("items").size(), 2U) << first;
    EXPECT_EQ(first["items"][0]["id"], made[2]);
    EXPECT_EQ(first["items"][0]["input"], "raw/2.jsonl");
    EXPECT_TRUE(first["items"][0].contains("state"));
    const Json second = get("/v1/preparations?limit=2&after=" + first.at("next").get<std::string>());
    ASSERT_EQ(second.at("items").size(), 1U) << second;
    EXPECT_EQ(second["items"][0]["id"], made[0]);
    EXPECT_TRUE(second.at("next").is_null());
    std::filesystem::remove(fake("stage.waits"));
}

TEST_F(RoutesTest, ACheckSaysWhatIsMissingAndAJobOfItWhatItsRanksFind) {
    const std::string report = R"({"version":"1","devices":["cpu"],"ranks":[{"rank":0,"host":"n1"}]})";
    ASSERT_TRUE(write_file_atomic(fake("report.says"), report + "\n").ok());
    const auto states = [&](const Json& answer) {
        std::map<std::string, std::string> found;
        for (const Json& row : answer.at("checks")) found[row.at("name")] = row.at("state");
        return found;
    };
    const Json good = post("/v1/facilities/leonardo/check", Json::object()).json().value();
    EXPECT_EQ(good.at("ok"), true) << good;
    EXPECT_EQ(states(good)["store"], "ok") << good;
    EXPECT_EQ(states(good)["compute"], "skipped") << good;
    EXPECT_TRUE(get("/v1/facilities/leonardo").at("limits").at("machine").contains("found_at"));
    const std::string job = "/v1/facilities/leonardo/check-jobs/abcd1234";
    for (int i = 0; i < 2; ++i) EXPECT_EQ(client().call(Method::kPut, job, "{}")->status, 200);
    EXPECT_TRUE(eventually([&] { return get(job).at("state") == "ended"; }));
    EXPECT_EQ(states(get(job)), (std::map<std::string, std::string>{{"launcher", "fail"}, {"compute", "skipped"}}))
        << get(job) << ": two processes, each of which says that it is rank 0";
    EXPECT_TRUE(std::filesystem::exists(work_dir("leonardo") / "tasks/check-abcd1234"));
    EXPECT_EQ(client().call(Method::kDelete, job)->status, 204);
    EXPECT_FALSE(std::filesystem::exists(work_dir("leonardo") / "tasks/check-abcd1234"));
    EXPECT_EQ(client().call(Method::kPut, "/v1/facilities/leonardo/check-jobs/-a", "{}")->status, 422);
    std::filesystem::remove(fake("atoll-trainer"));
    const Json bad = post("/v1/facilities/leonardo/check", Json::object()).json().value();
    EXPECT_EQ(bad.at("ok"), false);
    EXPECT_EQ(states(bad)["atoll"], "fail") << bad;
}

TEST_F(RoutesTest, AJobOfADeviceThatAFacilitysTrainerLacksIsRefused) {
    Json spec = job_request(1);
    spec["participants"][0]["training"] = {{"device", "cuda"}};
    EXPECT_EQ(post("/v1/jobs", spec).status, 201) << "nobody has looked yet";
    EXPECT_TRUE(get("/v1/facilities/leonardo").at("devices").is_null());
    ASSERT_TRUE(write_file_atomic(fake("report.says"), R"({"version":"1","devices":["cpu","hip"],"gpus":[]})").ok());
    EXPECT_EQ(post("/v1/facilities/leonardo/check", Json::object()).status, 200);
    EXPECT_EQ(get("/v1/facilities/leonardo").at("devices"), Json({"cpu", "hip"}));
    spec["name"] = spec["output_model"] = "another";
    const auto refused = post("/v1/jobs", spec);
    EXPECT_EQ(refused.status, 422);
    EXPECT_EQ(Json::parse(refused.body).at("field"), "participants[0].training.device");
    EXPECT_NE(refused.body.find("leonardo"), std::string::npos) << refused.body;
    EXPECT_NE(refused.body.find("hip"), std::string::npos) << refused.body;
    spec["participants"][0]["training"] = {{"device", "hip"}};
    EXPECT_EQ(post("/v1/jobs", spec).status, 201);
}

struct Wrong {
    const char* pointer;
    Json value;
    const char* field;
};

TEST_F(RoutesTest, AJobThatDoesNotFitTheWorldIsRefusedByFieldAndChangesNothing) {
    const std::vector<Wrong> wrongs = {
        {"/participants/0/facility", "nowhere", "participants[0].facility"},
        {"/participants/1/dataset", "unknown", "participants[1].dataset"},
        {"/participants/1/dataset", "it", "participants[1].dataset"},  // lies at leonardo only
        {"/participants/0/dataset_version", 9, "participants[0].dataset_version"},
        {"/evaluation", {{"at", {{{"facility", "karolina"}, {"dataset", "it"}}}}}, "evaluation.at[0].dataset"},
        {"/model/name", "unknown", "model.name"},
        {"/model/version", "unknown", "model.version"},
        {"/strategy", {{"name", "magic"}}, "strategy.name"},
        {"/training/speed", 9, "training.speed"},
        {"/training/epochs", 2, "training.epochs"},  // beside steps
        {"/training/device", "tpu", "training.device"},
        {"/training/precision", "fp8", "training.precision"},
        {"/training/offload_params", "nvme", "training.offload_params"},
        {"/training/quantize", "nf4", "training.quantize"},
        {"/training",
         {{"steps", 3}, {"batch_size", 16}, {"lora_rank", 8}, {"lora_targets", "embed"}},
         "training.lora_targets"},
        {"/participants/0/training/lora_rank", 8, "participants[0].training.lora_rank"},
        {"/participants/1/training", {{"shard_group", 2}}, "participants[1].training.shard_group"},
        {"/output_model", "tiny", "output_model"},  // holds an imported base
        {"/colour", "blue", "colour"},
    };
    for (const auto& wrong : wrongs) {
        Json request = job_request(1);
        request[Json::json_pointer(wrong.pointer)] = wrong.value;
        const auto answer = post("/v1/jobs", request);
        EXPECT_EQ(answer.status, 422) << wrong.pointer << ": " << answer.body;
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), wrong.field) << answer.body;
    }
    EXPECT_EQ(count("jobs"), 0);
    EXPECT_EQ(count("tasks"), 0);
    EXPECT_EQ(count("outbox"), 0);
}

TEST_F(RoutesTest, WhatABodyMayLeaveOutMayBeNull) {
    Json job = job_request(1);
    job["strategy"] = {{"name", "fedavg"}};
    for (const char* pointer :
         {"/output_model", "/participants/0/dataset_version", "/participants/0/ranks", "/participants/0/training",
          "/strategy/weighting", "/strategy/max_share", "/strategy/outer", "/lr_round_schedule", "/evaluation/at",
          "/evaluation/models", "/attempts_max", "/round_deadline_s", "/quorum", "/quarantine_after"})
        job[Json::json_pointer(pointer)] = nullptr;
    const auto made = post("/v1/jobs", job);
    EXPECT_EQ(made.status, 201) << made.body;
    job["output_model"] = "another";
    for (const char* key : {"strategy", "evaluation"}) job[key] = nullptr;
    EXPECT_EQ(post("/v1/jobs", job).status, 201);
    const Json facility = {{"name", "third"},
                           {"transport", {{"kind", "ssh"}, {"host", "login"}, {"config_file", nullptr}}},
                           {"batch", {{"kind", "local"}, {"slots", nullptr}}},
                           {"work_dir", "/work"},
                           {"programs", nullptr},
                           {"launcher", nullptr},
                           {"evaluation", nullptr},
                           {"environment", nullptr}};
    EXPECT_EQ(post("/v1/facilities", facility).status, 201);
    EXPECT_EQ(post("/v1/tokens", {{"subject", "ada"}, {"role", "viewer"}, {"days", nullptr}}).status, 201);
}

TEST_F(RoutesTest, AMistypedNameOrKeyOfAJobIsRefusedWithTheNearest) {
    struct Typed {
        const char* pointer;
        Json value;
        const char* meant;
    };
    for (const auto& typed : std::vector<Typed>{{"/participants/0/facility", "leonrado", "leonardo"},
                                                {"/participants/1/dataset", "cz", "cs"},
                                                {"/model/name", "tinny", "tiny"},
                                                {"/model/version", "bsae", "base"},
                                                {"/attempt_max", 3, "attempts_max"},
                                                {"/participants/0/rank", 1, "ranks"},
                                                {"/training/warmup_step", 3, "warmup_steps"}}) {
        Json request = job_request(1);
        request[Json::json_pointer(typed.pointer)] = typed.value;
        const std::string detail = post("/v1/jobs", request).json().error().message;
        EXPECT_TRUE(detail.ends_with(std::string(" ") + typed.meant + "?")) << detail;
    }
}

TEST_F(RoutesTest, WithoutAVersionAJobTakesTheNewestThatTheFacilityHolds) {
    catalog_->add_version("it", 2, "leonardo");
    catalog_->add_version("it", 3, "karolina");
    Json request = job_request(1);
    request["evaluation"] = {{"at", {{{"facility", "karolina"}, {"dataset", "it"}}}}};
    const auto made = client().post_json("/v1/jobs", request);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Json spec = get("/v1/jobs/" + made->at("id").get<std::string>()).at("spec");
    EXPECT_EQ(spec.at("participants").at(0).at("dataset_version"), 2) << spec;
    EXPECT_EQ(spec.at("participants").at(1).at("dataset_version"), 1) << spec;
    EXPECT_EQ(spec.at("evaluation").at("at").at(0).at("dataset_version"), 3) << spec;
}

TEST_F(RoutesTest, AVersionThatTheFacilityDoesNotHoldIsRefusedWithThoseItDoes) {
    catalog_->add_version("it", 2, "leonardo");
    catalog_->add_version("it", 3, "karolina");
    Json request = job_request(1);
    request["participants"][0]["dataset_version"] = 3;
    const Json answer = Json::parse(post("/v1/jobs", request).body);
    EXPECT_EQ(answer.value("field", ""), "participants[0].dataset_version");
    for (const char* named : {"leonardo", "2, 1"})
        EXPECT_NE(answer.value("detail", "").find(named), std::string::npos) << answer;
    request["participants"][0] = {{"facility", "leonardo"}, {"dataset", "cs"}};
    const Json none = Json::parse(post("/v1/jobs", request).body);
    EXPECT_EQ(none.value("field", ""), "participants[0].dataset");
    EXPECT_NE(none.value("detail", "").find("atoll dataset show cs"), std::string::npos) << none;
    EXPECT_EQ(count("jobs"), 0);
}

TEST_F(RoutesTest, TheLargestJobAsksTheOtherServicesAFewTimes) {
    auto connection = connect();
    Json participants = Json::array();
    for (std::size_t i = 0; i < kParticipantsMax; ++i) {
        const std::string name = "site-" + std::to_string(i);
        const Json facility = {{"name", name},
                               {"transport", {{"kind", "local"}}},
                               {"batch", {{"kind", "local"}}},
                               {"work_dir", work_dir(name).string()}};
        ASSERT_EQ(post("/v1/facilities", facility).status, 201);
        catalog_->add_version("it", static_cast<int>(2 + i), name);
        participants.push_back({{"facility", name}, {"dataset", "it"}});
    }
    ASSERT_TRUE(connection.query("UPDATE facilities SET retry_at = now() + interval '1 hour'").ok()) << "nobody works";
    Json request = job_request(1);
    request["participants"] = participants;
    EXPECT_LT(request.dump().size(), 1U << 20) << "the gateway takes no more";
    const std::int64_t before = catalog_->requests();
    const std::string job = submit(request);
    EXPECT_LE(catalog_->requests() - before, 8);
    const Json view = get("/v1/jobs/" + job);
    EXPECT_EQ(view.at("tasks"),
              (Json{{"train", {{"pending", kParticipantsMax}}}, {"evaluate", {{"pending", kParticipantsMax}}}}));
    EXPECT_EQ(view.at("spec").at("participants").back().at("dataset_version"), kParticipantsMax + 1);
    EXPECT_EQ(view.at("spec").at("participants").back().at("path"), "datasets/it/1001");
}

TEST_F(RoutesTest, AWrongFacilityOrPreparationIsRefusedByFieldAndChangesNothing) {
    const Json facility = {{"name", "third"},
                           {"transport", {{"kind", "local"}}},
                           {"batch", {{"kind", "local"}}},
                           {"work_dir", work_dir("third").string()}};
    const Json preparation = {
        {"facility", "leonardo"}, {"dataset", "it"}, {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
        {"input", "it.jsonl"},    {"seq_len", 128},  {"batching", "packing"},
        {"validation_percent", 5}};
    const auto refused = [&](const std::string& path, Json body, const Wrong& wrong) {
        body[Json::json_pointer(wrong.pointer)] = wrong.value;
        const auto answer = post(path, body);
        EXPECT_EQ(answer.status, 422) << wrong.pointer << ": " << answer.body;
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), wrong.field) << answer.body;
    };
    for (const Wrong& wrong : std::vector<Wrong>{{"/colour", "blue", "colour"},
                                                 {"/name", 7, "name"},
                                                 {"/work_dir", "here", "work_dir"},
                                                 {"/batch/kind", "pbs", "batch.kind"},
                                                 {"/transport/kind", "pigeon", "transport.kind"}})
        refused("/v1/facilities", facility, wrong);
    for (const Wrong& wrong : std::vector<Wrong>{{"/colour", "blue", "colour"},
                                                 {"/seq_len", "long", "seq_len"},
                                                 {"/seq_len", 4096, "seq_len"},
                                                 {"/facility", "nowhere", "facility"},
                                                 {"/dataset", "unknown", "dataset"},
                                                 {"/tokenizer/model", "unknown", "tokenizer.model"},
                                                 {"/tokenizer/version", "unknown", "tokenizer.version"}})
        refused("/v1/preparations", preparation, wrong);
    EXPECT_EQ(client().call(Method::kPost, "/v1/facilities", "{\"name\":")->status, 400);
    EXPECT_EQ(count("facilities"), 2);
    for (const char* table : {"preparations", "tasks", "outbox"}) EXPECT_EQ(count(table), 0) << table;
}

TEST_F(RoutesTest, OnlyTheRightRolesMayActAndRead) {
    const std::string job = job_request(1).dump();
    for (const auto role : {auth::Role::kViewer, auth::Role::kFacility})
        for (const char* path : {"/v1/jobs", "/v1/facilities", "/v1/preparations", "/v1/jobs/x/cancel"})
            EXPECT_EQ(client(role).call(Method::kPost, path, job)->status, 403) << path;
    EXPECT_EQ(client(auth::Role::kViewer).call(Method::kDelete, "/v1/facilities/leonardo")->status, 403);
    EXPECT_EQ(count("facilities"), 2);
    for (const char* table : {"jobs", "preparations", "tasks", "outbox"}) EXPECT_EQ(count(table), 0) << table;
    EXPECT_EQ(client(auth::Role::kFacility).call(Method::kGet, "/v1/jobs")->status, 403);
    EXPECT_EQ(client(auth::Role::kViewer).call(Method::kGet, "/v1/jobs")->status, 200);
    EXPECT_EQ(client(auth::Role::kViewer).call(Method::kGet, "/v1/jobs/x/logs")->status, 403);
    EXPECT_EQ(client(auth::Role::kOperator).call(Method::kGet, "/v1/jobs/x/logs")->status, 404);
    EXPECT_EQ(client_with("").call(Method::kGet, "/v1/jobs")->status, 401);
}

TEST_F(RoutesTest, AnIssuedTokenIsListedWithoutItselfAndRevoked) {
    const auto issued = post("/v1/tokens", {{"subject", "ada"}, {"role", "operator"}, {"days", 3}});
    ASSERT_EQ(issued.status, 201) << issued.body;
    const Json token = issued.json().value();
    auto ada = client_with(token.at("token"));
    EXPECT_EQ(ada.call(Method::kGet, "/v1/jobs")->status, 200);
    EXPECT_EQ(ada.call(Method::kGet, "/v1/tokens")->status, 403);
    EXPECT_EQ(ada.call(Method::kPost, "/v1/tokens", R"({"subject": "eve", "role": "admin"})")->status, 403);
    const Json listed = get("/v1/tokens").at("items").at(0);
    EXPECT_FALSE(listed.contains("token"));
    EXPECT_TRUE(listed.at("revoked_at").is_null());
    EXPECT_EQ(listed.at("state"), "valid");
    EXPECT_EQ(listed.at("id"), token.at("id"));
    for (int i = 0; i < 2; ++i)  // safe to repeat
        EXPECT_EQ(client().call(Method::kDelete, "/v1/tokens/" + listed.at("id").get<std::string>())->status, 204);
    EXPECT_TRUE(get("/v1/tokens").at("items").at(0).at("revoked_at").is_string());
    EXPECT_EQ(get("/v1/tokens").at("items").at(0).at("state"), "revoked");
    for (const char* impossible : {"nosuch", "01jd3v7e", "01JD3V7E8M2K4T6W8Y0A2C4E6G"})
        EXPECT_EQ(client().call(Method::kDelete, std::string("/v1/tokens/") + impossible)->status, 422) << impossible;
    auto connection = connect();
    EXPECT_EQ(connection.query("SELECT token_id FROM auth.revocations")->text(0, "token_id"),
              listed.at("id").get<std::string>());
}

TEST_F(RoutesTest, AWrongOrderForATokenIsRefusedByFieldAndChangesNothing) {
    for (const auto& [field, order] : std::vector<std::pair<std::string, Json>>{
             {"subject", {{"role", "viewer"}}},
             {"subject", {{"role", "viewer"}, {"subject", "Ada Byron"}}},
             {"role", {{"role", "facility"}, {"subject", "leonardo"}}},
             {"days", {{"role", "viewer"}, {"subject", "ada"}, {"days", 366}}},
             {"scope", {{"role", "viewer"}, {"subject", "ada"}, {"scope", Json::object()}}}}) {
        const auto answer = post("/v1/tokens", order);
        EXPECT_EQ(answer.status, 422) << answer.body;
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), field) << answer.body;
    }
    EXPECT_EQ(count("tokens"), 0);
}

TEST_F(RoutesTest, AJobIsChangedByWhoSubmittedItOrAnAdmin) {
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    const auto operators_client = [this](const char* subject) {
        const Json issued = post("/v1/tokens", {{"subject", subject}, {"role", "operator"}}).json().value();
        return client_with(issued.at("token"));
    };
    auto ada = operators_client("ada"), eve = operators_client("eve");
    for (const char* facility : {"/v1/facilities/leonardo", "/v1/facilities/karolina"})
        EXPECT_EQ(client().call(Method::kPatch, facility, R"({"allow": ["*"]})", {{{"If-Match", "*"}}, {}})->status,
                  200);
    const Json job = ada.post_json("/v1/jobs", job_request(1)).value();
    const std::string path = "/v1/jobs/" + job.at("id").get<std::string>();
    for (const char* change : {"/pause", "/resume", "/cancel"})
        EXPECT_EQ(eve.call(Method::kPost, path + change)->status, 403) << change;
    EXPECT_EQ(eve.call(Method::kDelete, path)->status, 403);
    EXPECT_EQ(ada.call(Method::kDelete, path)->status, 409) << "it goes on";
    EXPECT_EQ(get(path).at("state"), "running");
    EXPECT_EQ(ada.call(Method::kPost, path + "/pause")->status, 200);
    EXPECT_EQ(client().call(Method::kPost, path + "/resume")->status, 200) << "an admin";
    EXPECT_EQ(ada.call(Method::kPost, path + "/cancel")->status, 200);
    std::filesystem::remove(fake("stage.waits"));
}

TEST_F(RoutesTest, ARepeatedSubmissionMakesOneJob) {
    auto admin = client();
    const auto first = admin.post_json("/v1/jobs", job_request(1), "key").value();
    const auto second = admin.post_json("/v1/jobs", job_request(1), "key").value();
    EXPECT_EQ(first.at("id"), second.at("id"));
    EXPECT_EQ(count("jobs"), 1);
    EXPECT_EQ(admin.post_json("/v1/jobs", job_request(2), "key").error().code, ErrorCode::kConflict);
}

TEST_F(RoutesTest, AModelThatAJobIsWritingIsNoOtherJobsOutput) {
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    const std::string first = submit(job_request(1));
    ASSERT_EQ(post("/v1/jobs/" + first + "/pause", Json::object()).status, 200);
    const auto second = post("/v1/jobs", job_request(1));
    EXPECT_EQ(second.status, 409) << second.body;
    EXPECT_EQ(Json::parse(second.body).value("field", ""), "output_model");
    EXPECT_NE(second.body.find(first), std::string::npos) << "that job is named: " << second.body;
    EXPECT_EQ(count("jobs"), 1);
    Json other = job_request(1);
    other["output_model"] = "another";
    EXPECT_EQ(post("/v1/jobs", other).status, 201) << "the name alone is no conflict";
    EXPECT_EQ(post("/v1/jobs/" + first + "/cancel", Json::object()).status, 200);
    EXPECT_EQ(post("/v1/jobs", job_request(1)).status, 201) << "the first has ended";
    std::filesystem::remove(fake("stage.waits"));
}

TEST_F(RoutesTest, OtherServicesAreAskedWithNoTransactionOpen) {
    std::atomic<int> asked = 0;
    catalog_->set_on_model([&] {
        auto connection = connect();
        const auto locks = connection.query(
            "SELECT 1 FROM pg_locks WHERE relation = 'dispatch.idempotency'::regclass AND mode = 'RowExclusiveLock' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())");
        EXPECT_EQ(locks->size(), 0);
        ++asked;
    });
    auto admin = client();
    EXPECT_TRUE(admin.post_json("/v1/jobs", job_request(1), "a-job").ok());
    const Json preparation = {{"facility", "karolina"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    EXPECT_TRUE(admin.post_json("/v1/preparations", preparation, "a-preparation").ok());
    EXPECT_EQ(asked, 4) << "the job's base by its tag and by its digest, the preparation's tokenizer likewise";
    catalog_->set_on_model({});
}

TEST_F(RoutesTest, AViewerSeesNamesOfTheEnvironmentOnly) {
    const std::string patch = R"({"environment": {"PROXY": "http://user:word@proxy"}})";
    EXPECT_EQ(client().call(Method::kPatch, "/v1/facilities/leonardo", patch, {{{"If-Match", "*"}}, {}})->status, 200);
    auto viewer = client(auth::Role::kViewer);
    for (const char* path : {"/v1/facilities", "/v1/facilities/leonardo"}) {
        const std::string seen = viewer.call(Method::kGet, path)->body;
        EXPECT_EQ(seen.find("word"), std::string::npos) << seen;
        EXPECT_NE(seen.find("\"PROXY\":null"), std::string::npos) << seen;
        EXPECT_NE(client(auth::Role::kOperator).call(Method::kGet, path)->body.find("word"), std::string::npos);
    }
}

TEST_F(RoutesTest, WhatIsNotThereIsNotFound) {
    for (const char* path : {"/v1/jobs/x", "/v1/jobs/x/rounds", "/v1/jobs/x/events", "/v1/jobs/x/logs",
                             "/v1/preparations/x", "/v1/facilities/x"})
        EXPECT_EQ(client().call(Method::kGet, path)->status, 404) << path;
    for (const char* verb : {"cancel", "pause", "resume"})
        EXPECT_EQ(post(std::string("/v1/jobs/x/") + verb, Json::object()).status, 404) << verb;
}

TEST_F(RoutesTest, OnlyARoundThatWaitsForItsAggregationShowsWhatItIsMadeOf) {
    ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
    const std::string job = submit(job_request(1));
    const auto refusal = [&](const std::string& id, const std::string& round) {
        const std::string path = "/v1/jobs/" + id + "/rounds/" + round + "/updates";
        const auto answer = client().call(Method::kGet, path).value();
        for (const std::string& fault : answers_.faults(Method::kGet, path, answer)) ADD_FAILURE() << fault;
        return std::to_string(answer.status) + " " + Json::parse(answer.body).value("field", "");
    };
    EXPECT_EQ(refusal("none", "1"), "404 id");
    for (const char* round : {"0", "1", "2", "01", "one"}) EXPECT_EQ(refusal(job, round), "409 round") << round;
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
    EXPECT_EQ(refusal(job, "1"), "409 id");
    std::filesystem::remove(fake("stage.waits"));
}

TEST_F(RoutesTest, AWrongQueryIsNamed) {
    for (const char* query : {"after=x", "wait=soon", "limit=-1"}) {
        const auto answer = client().call(Method::kGet, std::string("/v1/jobs/x/events?") + query).value();
        EXPECT_EQ(answer.status, 422) << query;
        EXPECT_EQ(Json::parse(answer.body).at("field"), std::string(query).substr(0, std::string(query).find('=')));
    }
}

TEST_F(RoutesTest, TheOpenApiDocumentFitsTheServer) {
    for (const auto& fault : service::openapi_faults(definition().openapi, server(), "dispatch"))
        ADD_FAILURE() << fault;
}

// What a job's strategy may say, as the document has it, is what the strategies' own table says.
TEST_F(RoutesTest, TheOpenApiDocumentHasTheStrategiesOfTheTable) {
    const Json document = Json::parse(definition().openapi);
    const Json described =
        document.at(Json::json_pointer("/components/schemas/JobSpec/properties/strategy/properties"));
    Json expected = {{"name", {{"enum", Json::array()}}}};
    const Json table = aggregate::describe_strategies();
    for (const Json& strategy : table["items"]) {
        expected["name"]["enum"].push_back(strategy["name"]);
        expected.update(strategy["settings"]);
    }
    const std::function<Json(const Json&)> without_words = [&](const Json& schemas) {
        Json kept = Json::object();
        for (const auto& [key, schema] : schemas.items()) {
            kept[key] = schema;
            for (const char* word : {"description", "additionalProperties"}) kept[key].erase(word);
            if (schema.contains("properties")) kept[key]["properties"] = without_words(schema["properties"]);
        }
        return kept;
    };
    EXPECT_EQ(without_words(described), without_words(expected));
}

}  // namespace
}  // namespace atl::dispatch
