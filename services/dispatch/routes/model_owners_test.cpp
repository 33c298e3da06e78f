#include <gtest/gtest.h>

#include <map>

#include "services/dispatch/testing/job_lifecycle_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

// Ada and eve are operators who may use both facilities; the model "tiny" is the tester's.
class ModelOwnersTest : public JobLifecycleTest {
  protected:
    void SetUp() override {
        JobLifecycleTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        begin();
        for (const char* name : {"ada", "eve"}) {
            const Json issued = post("/v1/tokens", {{"subject", name}, {"role", "operator"}}).json().value();
            tokens_[name] = issued.at("token");
        }
        tokens_["admin"] = token(auth::Role::kAdmin);
        for (const char* name : {"leonardo", "karolina"})
            ASSERT_EQ(ask("admin", Method::kPatch, "/v1/facilities/" + std::string(name), {{"allow", {"*"}}}), "200");
    }
    http::ClientResponse call(const std::string& who, Method method, const std::string& path, const Json& body) {
        http::ClientOptions options;
        options.base_url = base_url_;
        options.token = tokens_.at(who);
        return http::Client(options).call(method, path, body.dump(), {{{"If-Match", "*"}}, {}}).value();
    }
    // "200", or the status and the field of the problem.
    std::string ask(const std::string& who, Method method, const std::string& path, const Json& body = Json::object()) {
        const auto answer = call(who, method, path, body);
        const std::string status = std::to_string(answer.status);
        return answer.status < 400 ? status : status + " " + Json::parse(answer.body).value("field", "");
    }
    std::string submit_as(const std::string& who, const Json& request) {
        const auto made = call(who, Method::kPost, "/v1/jobs", request);
        EXPECT_EQ(made.status, 201) << made.body;
        return Json::parse(made.body).value("id", "");
    }

    std::map<std::string, std::string> tokens_;
};

// A job that changes nothing hands in what it began with: its output model's owner would have another's update.
TEST_F(ModelOwnersTest, AJobBeginsWithNoUpdateOfAnothersModel) {
    Json job = job_request(1);
    job["output_model"] = "hers";
    submit_as("ada", job);
    const std::string update(64, 'e');
    std::filesystem::create_directories(fake("pushed/hers"));
    ASSERT_TRUE(write_file_atomic(fake("pushed/hers/" + update), Json{{"digest", update}}.dump()).ok());
    job["output_model"] = "another";
    job["model"] = {{"name", "hers"}, {"version", update}};
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", job), "403 model.version");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/scripts?facility=leonardo", job), "403 model.version");
    const Json preparation = {{"facility", "leonardo"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "hers"}, {"version", update}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    catalog_->set_dataset_owner("eve");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", preparation), "403 tokenizer.version");
    EXPECT_NE(ask("ada", Method::kPost, "/v1/jobs", job), "403 model.version");
}

// All of a version is staged, and whoever may use a facility may read there.
TEST_F(ModelOwnersTest, ControlVariatesOfAnothersModelAreSentToNoSite) {
    catalog_->set_control_variates();
    Json job = job_request(1);
    job["output_model"] = "hers";
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", job), "403 model.version");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/job-checks", job), "403 model.version");
    catalog_->set_dataset_owner("eve");
    const Json preparation = {{"facility", "leonardo"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", preparation), "403 tokenizer.version");
    EXPECT_EQ(ask("admin", Method::kPost, "/v1/job-checks", job), "200");
}

// Nobody keeps another's model from being removed by what is refused.
TEST_F(ModelOwnersTest, OnlyAJobThatIsTakenHoldsItsBase) {
    Json job = job_request(1);
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/job-checks", job), "200");
    Json of_adapters = job;
    of_adapters["training"]["lora_rank"] = 2;
    of_adapters["output_model"] = "eves";
    EXPECT_NE(ask("eve", Method::kPost, "/v1/jobs", of_adapters), "201") << "this store takes no adapter";
    EXPECT_FALSE(catalog_->is_held(kBaseDigest));
    submit_as("eve", job);
    EXPECT_TRUE(catalog_->is_held(kBaseDigest));
}

TEST_F(ModelOwnersTest, AnOperatorOrdersSoManyPreparationsAndNoMore) {
    const Json preparation = {{"facility", "leonardo"},
                              {"dataset", "it"},
                              {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                              {"input", "raw/it.jsonl"},
                              {"seq_len", 128}};
    catalog_->set_dataset_owner("eve");
    ASSERT_TRUE(connect()
                    .query("INSERT INTO preparations (id, spec, created_by) SELECT 'p' || i, '{}', 'eve' FROM "
                           "generate_series(1, 1999) i")
                    .ok());
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", preparation), "202");
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/preparations", preparation), "409 quota");
    EXPECT_EQ(ask("admin", Method::kPost, "/v1/preparations", preparation), "202");
}

TEST_F(ModelOwnersTest, AJobWritesIntoNoOtherModelOfItsModelsName) {
    Json request = job_request(1);
    request["output_model"] = "famous";
    request["evaluation"] = {{"at", Json::array()}};
    set("train.waits");
    const std::string job = submit_as("eve", request), path = "/v1/jobs/" + job;
    ASSERT_TRUE(eventually([&] { return lines("runs").size() == 2; }));
    ASSERT_EQ(ask("eve", Method::kPost, path + "/pause"), "200");
    catalog_->replace_model("famous", "ada");
    EXPECT_TRUE(ask("ada", Method::kPost, path + "/resume").starts_with("403")) << "the job is eve's";
    EXPECT_EQ(ask("eve", Method::kPost, path + "/resume"), "409 output_model");
    // What runs all the same hands nothing in.
    std::filesystem::remove(fake("train.waits"));
    catalog_->replace_model("famous", "eve");
    ASSERT_EQ(ask("eve", Method::kPost, path + "/resume"), "200") << "a model of hers again";
    ASSERT_TRUE(reaches(job, "completed")) << get(path).dump(2);
}

TEST_F(ModelOwnersTest, AJobWhoseBaseWasRemovedIsNotResumedAndFailsAtOnce) {
    set("stage.waits");
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit_as("eve", request), path = "/v1/jobs/" + job;
    ASSERT_TRUE(eventually([&] { return lines("stage").size() >= 2; }));
    ASSERT_EQ(ask("eve", Method::kPost, path + "/pause"), "200");
    catalog_->remove_version(kBaseDigest);
    EXPECT_EQ(ask("eve", Method::kPost, path + "/resume"), "409 state");
    request["output_model"] = "another";
    EXPECT_EQ(ask("eve", Method::kPost, "/v1/jobs", request), "422 model.version");
    set("stage.exits", "66");  // the store's word, as the site has it
    std::filesystem::remove(fake("stage.waits"));
    ASSERT_TRUE(reaches(job, "failed")) << get(path).dump(2);
    EXPECT_NE(error_of(job).find("was removed from the store"), std::string::npos) << error_of(job);
    EXPECT_EQ(connect().query("SELECT 1 FROM attempts WHERE number > 1")->size(), 0) << "not tried again";
}

TEST_F(ModelOwnersTest, AnUpdateIsHandedInToNoOtherModelOfThatName) {
    Json request = job_request(1);
    request["output_model"] = "famous";
    request["evaluation"] = {{"at", Json::array()}};
    set("train.waits");
    const std::string job = submit_as("eve", request);
    ASSERT_TRUE(eventually([&] { return lines("runs").size() == 2; }));
    catalog_->replace_model("famous", "ada");
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job).dump(2);
    EXPECT_NE(get("/v1/jobs/" + job).dump().find("the one of that name is ada's"), std::string::npos);
    EXPECT_TRUE(lines("push").empty());
}

TEST_F(ModelOwnersTest, AnOperatorHasSoManyJobsAndARefusedOneLeavesNoModel) {
    Json job = job_request(1);
    job["output_model"] = "hers";
    submit_as("ada", job);
    ASSERT_TRUE(connect()
                    .query("INSERT INTO jobs (id, name, spec, base_digest, state, current_round, created_by) SELECT "
                           "'made-' || i, 'made', spec, base_digest, 'cancelled', 0, 'ada' FROM jobs, "
                           "generate_series(1, 1999) i WHERE created_by = 'ada'")
                    .ok());
    job["output_model"] = "one-more";
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/jobs", job), "409 quota");
    EXPECT_EQ(ask("ada", Method::kPost, "/v1/job-checks", job), "200") << "nothing is kept of it";
    http::ClientOptions options;
    options.base_url = catalog_->url();
    options.token = tokens_.at("ada");
    EXPECT_EQ(http::Client(options).call(Method::kGet, "/v1/models/one-more")->status, 404);
    EXPECT_EQ(ask("admin", Method::kPost, "/v1/jobs", job), "201");
}

}  // namespace
}  // namespace atl::dispatch
