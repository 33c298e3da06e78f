#include <gtest/gtest.h>

#include <map>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

const std::string kAll = "/v1/facilities";
const std::string kLeonardo = "/v1/facilities/leonardo";
const std::string kVega = "/v1/facilities/vega";
const Json kPreparation = {{"facility", "leonardo"},
                           {"dataset", "it"},
                           {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                           {"input", "raw/it.jsonl"},
                           {"seq_len", 128}};

// What people may do with facilities: ada and eve are operators; "leonardo" and "karolina" are the tester's.
class FacilityOwnersTest : public DispatchServiceTest {
  protected:
    void SetUp() override {
        DispatchServiceTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        ASSERT_TRUE(write_file_atomic(fake("stage.waits"), "").ok());
        for (const char* name : {"ada", "eve"}) {
            const Json issued = post("/v1/tokens", {{"subject", name}, {"role", "operator"}}).json().value();
            tokens_[name] = issued.at("token");
        }
        tokens_["admin"] = token(auth::Role::kAdmin);
    }
    void TearDown() override {
        std::filesystem::remove(fake("stage.waits"));
        DispatchServiceTest::TearDown();
    }
    // "200", or the status and the field of the problem.
    std::string ask(const std::string& who, Method method, const std::string& path, const Json& body = Json::object()) {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.token = tokens_.at(who);
        const auto answer = http::Client(options).call(method, path, body.dump(), {{{"If-Match", "*"}}, {}}).value();
        for (const std::string& fault : answers_.faults(method, path, answer)) ADD_FAILURE() << fault;
        std::string said = std::to_string(answer.status);
        if (answer.status >= 400) said += " " + Json::parse(answer.body).value("field", "");
        if (answer.status >= 500) said += answer.body;
        return said;
    }
    static Json site(const std::string& name, const std::string& host, const Json& more = Json::object()) {
        Json facility = {{"name", name},
                         {"transport", {{"kind", "ssh"}, {"host", host}}},
                         {"batch", {{"kind", "local"}}},
                         {"work_dir", "/scratch/" + name}};
        facility.update(more);
        return facility;
    }

    std::map<std::string, std::string> tokens_;
};

TEST_F(FacilityOwnersTest, AnAdminAddsAFacilityAndNamesItsOwner) {
    EXPECT_EQ(ask("ada", Method::kPost, kAll, site("vega", "login.vega")), "403 ");
    EXPECT_EQ(ask("admin", Method::kPost, kAll, site("vega", "login.vega", {{"owner", "ada"}})), "201");
    EXPECT_EQ(get(kVega).at("owner"), "ada");
    EXPECT_EQ(get(kVega).at("allow"), Json::array());
    EXPECT_EQ(ask("admin", Method::kPost, kAll, site("mine", "login.mine")), "201");
    EXPECT_NE(get("/v1/facilities/mine").at("owner"), "") << "who adds it";
}

TEST_F(FacilityOwnersTest, AScriptShowsNoValuesOfAnothersEnvironment) {
    const Json secret = {{"environment", {{"WANDB_API_KEY", "s3cret"}}}, {"allow", {"eve"}}, {"owner", "ada"}};
    for (const char* name : {"leonardo", "karolina"})
        ASSERT_EQ(ask("admin", Method::kPatch, "/v1/facilities/" + std::string(name), secret), "200");
    const auto script = [&](const std::string& who) {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.token = tokens_.at(who);
        return http::Client(options).call(Method::kPost, "/v1/scripts?facility=leonardo", job_request(1).dump())->body;
    };
    EXPECT_NE(script("ada").find("s3cret"), std::string::npos);
    EXPECT_EQ(script("eve").find("s3cret"), std::string::npos);
    EXPECT_NE(script("eve").find("WANDB_API_KEY"), std::string::npos) << script("eve");
}

TEST_F(FacilityOwnersTest, ValuesOfAnEnvironmentAreForThoseWhoMayChangeIt) {
    const Json secret = {{"environment", {{"WANDB_API_KEY", "s3cret"}}}};
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, secret), "200");
    const auto seen_by = [&](const std::string& who) {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.token = tokens_.at(who);
        return http::Client(options).call(Method::kGet, kLeonardo)->json().value().at("environment");
    };
    const Json hidden = {{"WANDB_API_KEY", nullptr}};
    for (const char* allowed : {"eve", "ada"}) {
        ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"owner", ""}, {"allow", {allowed}}}), "200");
        EXPECT_EQ(seen_by("eve"), hidden) << "one without an owner is the admins'";
        EXPECT_EQ(seen_by("admin"), secret.at("environment"));
    }
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"owner", "ada"}, {"allow", {"eve"}}}), "200");
    EXPECT_EQ(seen_by("ada"), secret.at("environment"));
    EXPECT_EQ(seen_by("eve"), hidden) << "to use it is not to change it";
}

TEST_F(FacilityOwnersTest, TheOwnerOfAFacilityOfThisMachineSaysWhoMayUseItAfterItWasUsedToo) {
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"owner", "ada"}}), "200");
    EXPECT_EQ(ask("ada", Method::kPatch, kLeonardo, {{"allow", {"eve"}}}), "200");
    std::filesystem::create_directories(work_dir("leonardo"));
    ASSERT_EQ(ask("ada", Method::kPost, kLeonardo + "/check"), "200");
    ASSERT_EQ(connect().query("SELECT 1 FROM facilities WHERE name = 'leonardo' AND has_work_dir")->size(), 1);
    EXPECT_EQ(ask("ada", Method::kPatch, kLeonardo, {{"allow", Json::array()}}), "200");
    EXPECT_EQ(ask("eve", Method::kPost, kLeonardo + "/check"), "403 name");
    EXPECT_EQ(ask("ada", Method::kPatch, kLeonardo, {{"launcher", "env sh {ranks}"}}), "403 transport.kind");
}

TEST_F(FacilityOwnersTest, PeopleAreAllowedAndNoJobs) {
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"ada"}}}), "200");
    ASSERT_EQ(ask("admin", Method::kPatch, "/v1/facilities/karolina", {{"allow", {"ada"}}}), "200");
    Json request = job_request(1);
    for (const char* name : {"nights", "eve"}) {
        request["name"] = name;
        ASSERT_EQ(ask("ada", Method::kPost, "/v1/jobs", request), "201");
    }
    const std::string id = connect().query("SELECT id FROM jobs WHERE name = 'nights'")->text(0, "id");
    for (const std::string& job : {std::string("nights"), id, id.substr(0, 8)}) {
        EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"ada", job}}}), "422 allow") << job;
        EXPECT_EQ(ask("admin", Method::kPost, kAll, site("vega", "login.vega", {{"allow", {job}}})), "422 allow");
    }
    const auto refused =
        client().call(Method::kPatch, kLeonardo, R"({"allow": ["nights"]})", {{{"If-Match", "*"}}, {}});
    EXPECT_NE(refused->body.find("is a job of ada"), std::string::npos) << refused->body;
    EXPECT_EQ(get(kLeonardo).at("allow"), Json{"ada"});
    EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"ada", "eve"}}}), "200") << "a person, too";
    EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"yet-to-come"}}}), "200");
    ASSERT_TRUE(connect().query("UPDATE jobs SET name = 'yet-to-come'").ok());
    EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"yet-to-come", "ada"}}}), "200") << "it was before";
}

TEST_F(FacilityOwnersTest, AFacilityIsChangedAndRemovedByItsOwnerAndByAdmins) {
    ASSERT_EQ(ask("admin", Method::kPost, kAll, site("vega", "login.vega", {{"owner", "ada"}})), "201");
    ASSERT_EQ(ask("admin", Method::kPost, kAll, site("mine", "login.eve", {{"owner", "eve"}})), "201");
    EXPECT_EQ(ask("eve", Method::kPatch, kVega, {{"allow", {"*"}}}), "403 owner");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, {{"programs", "/opt/bin"}, {"allow", {"bo"}}}), "200");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, {{"owner", "eve"}}), "403 owner");
    EXPECT_EQ(ask("eve", Method::kPatch, "/v1/facilities/mine", {{"transport", {{"host", "login.vega"}}}}),
              "403 transport");
    EXPECT_EQ(ask("eve", Method::kPatch, kLeonardo, {{"allow", {"*"}}}), "403 owner");
    EXPECT_EQ(ask("eve", Method::kPost, kVega + "/check"), "403 name");
    EXPECT_EQ(ask("eve", Method::kDelete, kVega), "403 owner");
    EXPECT_EQ(ask("ada", Method::kDelete, kVega), "204");
    EXPECT_EQ(ask("admin", Method::kDelete, "/v1/facilities/mine"), "204");
}

TEST_F(FacilityOwnersTest, AHostKeyThatAnAdminPinnedAdminsAloneChange) {
    const auto key = [](const Json& value) { return Json{{"transport", {{"host_key", value}}}}; };
    const std::string pinned = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvUafYuyb6q/3fDmhQzQKdCcezsy8id3ky6UjGAwqcS";
    const std::string other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJZzfM9LL7Qe2EsJJaUlxLEtznipZ9sQlllKpysP8UhM";
    ASSERT_EQ(ask("admin", Method::kPost, kAll, site("vega", "login.vega", {{"owner", "ada"}})), "201");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, key(other)), "200") << "nobody has pinned one";
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, key(pinned)), "200") << "her own";
    EXPECT_EQ(ask("admin", Method::kPatch, kVega, key(other)), "200");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, key(pinned)), "403 transport.host_key");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, key(nullptr)), "403 transport.host_key");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, {{"allow", {"bo"}}}), "200");
    EXPECT_EQ(ask("admin", Method::kPatch, kVega, key(nullptr)), "200");
    EXPECT_EQ(ask("ada", Method::kPatch, kVega, key(pinned)), "200");
    Json with_key = site("mine", "login.mine", {{"owner", "ada"}});
    with_key["transport"]["host_key"] = pinned;
    ASSERT_EQ(ask("admin", Method::kPost, kAll, with_key), "201");
    EXPECT_EQ(ask("ada", Method::kPatch, "/v1/facilities/mine", key(other)), "403 transport.host_key");
}

TEST_F(FacilityOwnersTest, WhoOwnsADatasetSaysWhereACopyLiesIfTheFacilityAllowsIt) {
    catalog_->set_dataset_owner("ada");
    const std::string copy = kLeonardo + "/copies/it/1";
    const Json path = {{"path", "datasets/it/1"}};
    EXPECT_EQ(ask("ada", Method::kPut, copy, path), "403 name") << "the tester's facility";
    EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"ada", "eve"}}}), "200");
    EXPECT_EQ(ask("ada", Method::kPut, copy, path), "200");
    EXPECT_EQ(ask("eve", Method::kPut, copy, path), "403 ") << "ada's dataset";
    EXPECT_EQ(ask("ada", Method::kPut, kLeonardo + "/copies/it/x", path), "422 version");
    EXPECT_EQ(ask("ada", Method::kPut, copy), "422 path");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", kPreparation), "403 ");
}

TEST_F(FacilityOwnersTest, AJobWritesAModelOfItsSubmittersOwn) {
    for (const char* name : {"leonardo", "karolina"})
        ASSERT_EQ(ask("admin", Method::kPatch, "/v1/facilities/" + std::string(name), {{"allow", {"*"}}}), "200");
    Json job = job_request(1);
    job["output_model"] = "hers";
    ASSERT_EQ(ask("ada", Method::kPost, "/v1/jobs", job), "201");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", job), "403 output_model");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/scripts?facility=leonardo", job), "403 output_model");
    job["output_model"] = "tiny";
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/jobs", job), "403 output_model") << "the tester's";
}

TEST_F(FacilityOwnersTest, NobodyIsGivenTheNameOfAService) {
    for (const char* name : {"dispatch", "aggregation"})
        EXPECT_EQ(ask("admin", Method::kPost, "/v1/tokens", {{"subject", name}, {"role", "operator"}}), "422 subject");
}

TEST_F(FacilityOwnersTest, AnAccountIsForWhomItsOwnerAllows) {
    catalog_->set_dataset_owner("eve");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", job_request(1)), "403 participants[0].facility");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/scripts?facility=leonardo", job_request(1)),
              "403 participants[0].facility");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", kPreparation), "403 facility");
    EXPECT_EQ(connect().query("SELECT 1 FROM tasks")->size(), 0);
    EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"eve"}}}), "200");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", job_request(1)), "403 participants[1].facility");
    EXPECT_EQ(ask("admin", Method::kPatch, "/v1/facilities/karolina", {{"allow", {"*"}}}), "200");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", job_request(1)), "201");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", kPreparation), "202");
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/preparations", kPreparation), "403 facility");
}

TEST_F(FacilityOwnersTest, OneOfAnEarlierReleaseIsTheAdminsAndForEverybody) {
    catalog_->set_dataset_owner("ada");
    ASSERT_TRUE(connect().query("UPDATE facilities SET spec = spec - 'owner' - 'allow'").ok());
    EXPECT_EQ(get(kLeonardo).at("owner"), "");
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/jobs", job_request(1)), "201");
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/preparations", kPreparation), "202");
    EXPECT_EQ(ask("ada", Method::kPatch, kLeonardo, {{"allow", {"*"}}}), "403 owner");
    EXPECT_EQ(ask("ada", Method::kDelete, kLeonardo), "403 owner");
    EXPECT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"owner", "ada"}}), "200");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", kPreparation), "403 facility");
}

TEST_F(FacilityOwnersTest, ACheckJobBelongsToWhoAskedForIt) {
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"owner", "olga"}, {"allow", {"ada", "eve"}}}), "200");
    const Json issued = post("/v1/tokens", {{"subject", "olga"}, {"role", "operator"}}).json().value();
    tokens_["olga"] = issued.at("token");
    const std::string job = kLeonardo + "/check-jobs/abcd1234";
    EXPECT_EQ(ask("ada", Method::kGet, job, nullptr), "404 id") << "nobody has asked for it";
    std::filesystem::create_directories(work_dir("leonardo"));
    ASSERT_EQ(ask("ada", Method::kPut, job), "200");
    for (const Method method : {Method::kPut, Method::kGet, Method::kDelete})
        EXPECT_EQ(ask("eve", method, job), "403 id") << http::to_string(method);
    for (const char* who : {"ada", "olga", "admin"}) EXPECT_EQ(ask(who, Method::kGet, job), "200") << who;
    EXPECT_EQ(ask("ada", Method::kDelete, job), "204");
    EXPECT_EQ(ask("eve", Method::kPut, job), "200") << "the name is free again";
    EXPECT_EQ(ask("olga", Method::kDelete, job), "204");
}

TEST_F(FacilityOwnersTest, OneCallerHasAFewCheckJobsAtAFacility) {
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"ada", "eve"}}}), "200");
    std::filesystem::create_directories(work_dir("leonardo"));
    const auto job = [](int i) { return kLeonardo + "/check-jobs/abcd000" + std::to_string(i); };
    const auto put_as = [&](const std::string& who, int i) {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.token = tokens_.at(who);
        options.attempts_max = 1;
        return http::Client(options).call(Method::kPut, job(i), "{}")->status;
    };
    for (int i = 0; i < 8; ++i) EXPECT_EQ(put_as("ada", i), 200) << i;
    EXPECT_EQ(put_as("ada", 8), 429);
    EXPECT_EQ(put_as("ada", 0), 200) << "it is there";
    EXPECT_EQ(put_as("eve", 9), 200) << "it is each one's own";
    EXPECT_EQ(ask("ada", Method::kDelete, job(0)), "204");
    EXPECT_EQ(put_as("ada", 8), 200);
    for (int i = 1; i < 9; ++i) EXPECT_EQ(ask("ada", Method::kDelete, job(i)), "204");
    EXPECT_EQ(ask("eve", Method::kDelete, job(9)), "204");
}

// Jobs of all facilities of this machine run as one user.
TEST_F(FacilityOwnersTest, AnOperatorPreparesNoFileBesideAFacilityOfThisMachine) {
    ASSERT_EQ(ask("admin", Method::kPatch, kLeonardo, {{"allow", {"ada"}}}), "200");
    catalog_->set_dataset_owner("ada");
    const auto prepare = [&](const std::string& who, const std::filesystem::path& input) {
        Json body = kPreparation;
        body["input"] = input.string();
        return ask(who, Method::kPost, "/v1/preparations", body);
    };
    for (const auto& elsewhere : {work_dir("karolina") / "corpus.jsonl", work_dir("leonardo"),
                                  std::filesystem::path(work_dir("leonardo").string() + "-2/corpus.jsonl"),
                                  std::filesystem::path("raw/corpus.jsonl," + work_dir("karolina").string() + "/*")})
        EXPECT_EQ(prepare("ada", elsewhere), "403 input") << elsewhere;
    Json own = kPreparation;
    own.erase("validation_percent");
    own["validation_input"] = (work_dir("karolina") / "dev.jsonl").string();
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/preparations", own), "403 validation_input");
    EXPECT_EQ(prepare("ada", work_dir("leonardo") / "raw/corpus.jsonl"), "202");
    EXPECT_EQ(prepare("ada", "raw/corpus.jsonl"), "202") << "a path in its work directory";
    EXPECT_EQ(prepare("admin", work_dir("karolina") / "corpus.jsonl"), "202");
}

}  // namespace
}  // namespace atl::dispatch
