// What is told of a job before it is in any queue.
#include <gtest/gtest.h>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/safetensors/safetensors.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

class JobCheckRoutesTest : public DispatchServiceTest {
  protected:
    std::int64_t count(const std::string& table) {
        auto connection = connect();
        return connection.query("SELECT count(*) AS n FROM " + table)->integer(0, "n");
    }
};

TEST_F(JobCheckRoutesTest, StepsOfAFewTokensWhoseLossesWouldSpellOutATextAreRefused) {
    catalog_->add_version("cs", 2, "karolina", 4);
    Json request = job_request(1);  // 16 rows a step
    EXPECT_EQ(post("/v1/jobs", request).status, 201) << "64 tokens";
    request["output_model"] = "another";
    request["participants"][1]["training"] = {{"batch_size", 15}};
    const auto own = post("/v1/jobs", request);
    EXPECT_EQ(own.status, 422) << own.body;
    EXPECT_EQ(Json::parse(own.body).value("field", ""), "participants[1].training.batch_size");
    request["participants"][1].erase("training");
    request["training"]["batch_size"] = 1;
    const auto all = post("/v1/jobs", request);
    EXPECT_EQ(Json::parse(all.body).value("field", ""), "training.batch_size") << all.body;
    EXPECT_NE(Json::parse(all.body).value("detail", "").find("of 1 rows of 4 tokens"), std::string::npos) << all.body;
}

TEST_F(JobCheckRoutesTest, RowsThatTheModelCannotTakeAreRefused) {
    catalog_->add_version("cs", 2, "karolina", 4096);
    const auto refused = [&](const Json& request, const std::string& field, const std::string& limit) {
        const auto answer = post("/v1/jobs", request);
        EXPECT_EQ(answer.status, 422) << answer.body;
        const Json problem = Json::parse(answer.body);
        EXPECT_EQ(problem.value("field", ""), field);
        EXPECT_NE(problem.value("detail", "").find("4096"), std::string::npos) << problem;
        EXPECT_NE(problem.value("detail", "").find(limit), std::string::npos) << problem;
    };
    refused(job_request(1), "participants[1].dataset", "2048");
    Json elsewhere = job_request(1);
    elsewhere["participants"].erase(1);
    elsewhere["evaluation"] = {{"at", {{{"facility", "karolina"}, {"dataset", "cs"}}}}};
    refused(elsewhere, "evaluation.at[0].dataset", "2048");
    catalog_->set_config({{"max_position_embeddings", nullptr}});
    refused(job_request(1), "participants[1].dataset", "2048");
    catalog_->set_config(
        {{"max_position_embeddings", 4095}, {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}}}});
    refused(job_request(1), "participants[1].dataset", "4095");
    EXPECT_EQ(count("jobs"), 0);
    for (const Json& config : std::vector<Json>{{{"max_position_embeddings", 4096}},
                                                {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}}) {
        catalog_->set_config(config);
        Json request = job_request(1);
        request["output_model"] = "of-config-" + std::to_string(count("jobs"));  // one unfinished job each
        const auto taken = post("/v1/jobs", request);
        EXPECT_EQ(taken.status, 201) << config << taken.body;
    }
}

TEST_F(JobCheckRoutesTest, AModelThatTheTrainerCannotReadIsRefused) {
    catalog_->set_config({{"model_type", "gpt2"}});
    const auto unknown = post("/v1/jobs", job_request(1));
    EXPECT_EQ(Json::parse(unknown.body).value("field", ""), "model") << unknown.body;
    EXPECT_NE(unknown.body.find("'gpt2' is not built"), std::string::npos) << unknown.body;
    catalog_->set_config(Json());
    EXPECT_NE(post("/v1/jobs", job_request(1)).body.find("has no config.json"), std::string::npos);
    EXPECT_EQ(count("jobs"), 0);
}

// Its trainer leaves the head of a tied model out: an update without a tensor of its base is refused, round after
// round.
TEST_F(JobCheckRoutesTest, ATiedModelWithAHeadInItsFilesIsRefusedUnlessAdaptersAreTrained) {
    const auto weights = [&](const std::string& name) {
        std::vector<safetensors::TensorInfo> tensors = {{.name = name, .shape = {2}}};
        return safetensors::make_header(tensors) + std::string(8, '\0');
    };
    catalog_->set_weights(weights("lm_head.weight"));
    const auto refused = post("/v1/jobs", job_request(1));
    EXPECT_EQ(refused.status, 422) << refused.body;
    const Json problem = Json::parse(refused.body);
    EXPECT_EQ(problem.value("field", ""), "model");
    EXPECT_NE(problem.value("detail", "").find("the model is computed without the tensor \"lm_head.weight\""),
              std::string::npos)
        << problem;
    EXPECT_NE(problem.value("detail", "").find("--steps 0"), std::string::npos) << problem;
    Json adapters = job_request(1);
    adapters["training"]["lora_rank"] = 2;
    EXPECT_EQ(post("/v1/job-checks", adapters).body.find("lm_head"), std::string::npos);
    catalog_->set_config({{"tie_word_embeddings", false}});
    Json untied = job_request(1);
    untied["output_model"] = "untied";
    EXPECT_EQ(post("/v1/jobs", untied).status, 201);
    catalog_->set_config({{"tie_word_embeddings", true}});
    catalog_->set_weights(weights("model.norm.weight"));
    Json tied = job_request(1);
    tied["output_model"] = "tied";
    EXPECT_EQ(post("/v1/jobs", tied).status, 201);
}

TEST_F(JobCheckRoutesTest, AJobThatAsksForLessMemoryThanItsTrainingNeedsIsRefused) {
    const Json cluster = {{"name", "hawk"},
                          {"transport", {{"kind", "ssh"}, {"host", "login"}}},
                          {"batch", {{"kind", "slurm"}, {"queues", {{"cpu", Json::object()}}}}},
                          {"work_dir", "/work"}};
    ASSERT_EQ(post("/v1/facilities", cluster).status, 201);
    catalog_->set_config({{"hidden_size", 512}, {"intermediate_size", 1024}, {"head_dim", 256}, {"vocab_size", 32000}});
    catalog_->add_version("it", 2, "hawk");
    Json request = job_request(1);
    request["participants"][0]["facility"] = "hawk";
    request["participants"][0]["resources"] = {{"memory", "16MiB"}};
    const auto refused = post("/v1/jobs", request);
    EXPECT_EQ(refused.status, 422) << refused.body;
    const Json problem = Json::parse(refused.body);
    EXPECT_EQ(problem.value("field", ""), "participants[0].resources.memory");
    const std::string detail = problem.value("detail", "");
    EXPECT_NE(detail.find("a node needs "), std::string::npos) << detail;
    EXPECT_NE(detail.find(" and asks for 16.0 MiB: take more nodes"), std::string::npos) << detail;
    EXPECT_EQ(count("jobs"), 0);
    request["participants"][0]["resources"]["memory"] = "16GiB";
    const auto taken = post("/v1/jobs", request);
    EXPECT_EQ(taken.status, 201) << taken.body;
}

TEST_F(JobCheckRoutesTest, AJobTakesTheNewestVersionThatFitsTheModelsTokenizer) {
    const std::string sha256(64, 'c');
    catalog_->set_tokenizer({{"tokenizer.json", sha256}});
    for (const int version : {2, 3}) catalog_->add_version("it", version, "leonardo");
    catalog_->set_fits("it", 1, true, "tiny");
    catalog_->set_fits("it", 2, true, "tiny");
    catalog_->set_fits("it", 3, false, "other");
    catalog_->set_tokenizer_reader("it", 3, prompt::kTokenizerReader);
    const auto made = post("/v1/jobs", job_request(1));
    ASSERT_EQ(made.status, 201) << made.body;
    EXPECT_EQ(Json::parse(made.body).at("spec").at("participants").at(0).at("dataset_version"), 2);
    EXPECT_EQ(catalog_->wanted_tokenizer(),
              (Json{{"vocabulary", {{"tokenizer.json", sha256}}}, {"settings", Json::object()}}));
    Json named = job_request(1);
    named["output_model"] = "another";
    named["participants"][0]["dataset_version"] = 3;
    const auto refused = post("/v1/jobs", named);
    EXPECT_EQ(Json::parse(refused.body).value("field", ""), "participants[0].dataset") << refused.body;
    EXPECT_NE(refused.body.find("that of other@bbbbbbbb, than that of model"), std::string::npos) << refused.body;
}

TEST_F(JobCheckRoutesTest, AJobThatValidatesWhileItTrainsNeedsDataForThatOfEachParticipant) {
    Json request = job_request(1);
    request["training"]["eval_every"] = "epoch";
    catalog_->set_validation_tokens("cs", 1, 0);
    const auto refused = post("/v1/jobs", request);
    EXPECT_EQ(refused.status, 422) << refused.body;
    EXPECT_EQ(Json::parse(refused.body).value("field", ""), "participants[1].dataset");
    EXPECT_NE(refused.body.find("has no rows for validation: leave out training.eval_every"), std::string::npos)
        << refused.body;
    catalog_->set_validation_tokens("cs", 1, 64);
    EXPECT_EQ(post("/v1/jobs", request).status, 201);
    request["output_model"] = "another";
    request["training"].erase("eval_every");
    request["training"]["val_samples"] = 64;
    EXPECT_EQ(Json::parse(post("/v1/jobs", request).body).value("field", ""), "training.val_samples");
}

TEST_F(JobCheckRoutesTest, AJobIsCheckedParticipantByParticipantAndNothingIsKept) {
    const auto finding = [](const Json& check, const std::string& path, const std::string& name) -> Json {
        for (const Json& one : check.at("findings"))
            if (one.at("path") == path && one.at("name") == name) return one;
        return {};
    };
    const Json good = Json::parse(post("/v1/job-checks", job_request(4)).body);
    EXPECT_EQ(good.at("ok"), true) << good;
    EXPECT_EQ(finding(good, "participants[0]", "data").at("seen"), "it version 1: 100 rows, 12000 tokens");
    EXPECT_EQ(finding(good, "participants[1]", "settings").at("seen"), "3 steps a round of 16 rows");
    catalog_->add_version("cs", 2, "karolina", 4096);
    Json bad = job_request(4);
    bad["participants"][0]["training"] = {{"activation_checkpointing", "full"}, {"checkpoint_layers", 99}};
    bad["participants"][1]["training"] = {{"batch_size", 101}};
    const auto answer = post("/v1/job-checks", bad);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json check = Json::parse(answer.body);
    EXPECT_EQ(check.at("ok"), false);
    EXPECT_EQ(finding(check, "participants[0]", "settings").at("field"), "participants[0].training.checkpoint_layers");
    EXPECT_EQ(finding(check, "participants[1]", "context").at("field"), "participants[1].dataset");
    EXPECT_EQ(finding(check, "participants[1]", "batch").at("state"), "warn");
    Json large = job_request(4);
    large["participants"][1]["training"] = {{"batch_size", 101}};
    large["participants"][1]["dataset_version"] = 1;  // the newest one's rows are too long for the model
    EXPECT_NE(post("/v1/jobs", large).body.find("karolina: a step takes 101 rows"), std::string::npos);
    EXPECT_EQ(count("jobs"), 1);
    const auto submitted = post("/v1/jobs", bad);
    EXPECT_EQ(Json::parse(submitted.body).value("field", ""), "participants[0].training.checkpoint_layers");
    EXPECT_NE(submitted.body.find("(and 1 more: `atoll job submit --check` shows all)"), std::string::npos);
    bad["participants"][0]["dataset_version"] = 7;
    bad["participants"][1]["dataset_version"] = 8;
    const Json missing = Json::parse(post("/v1/job-checks", bad).body);
    for (const char* path : {"participants[0]", "participants[1]"})
        EXPECT_EQ(finding(missing, path, "data").at("field"), path + std::string(".dataset_version"));
    EXPECT_EQ(post("/v1/job-checks", Json::object()).status, 422);
    EXPECT_EQ(client(auth::Role::kViewer).call(Method::kPost, "/v1/job-checks", bad.dump())->status, 403);
    EXPECT_EQ(count("jobs"), 1);
}

// Whatever would refuse it does so before anything is made for it, and says so to whoever only asks.
TEST_F(JobCheckRoutesTest, AModelThatAJobWritesIsNoOtherJobs) {
    Json request = job_request(2);
    ASSERT_EQ(post("/v1/jobs", request).status, 201);
    request["training"]["lora_rank"] = 1;  // its first adapter could not be sent: there is no store for it here
    const auto refused = post("/v1/jobs", request);
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_EQ(Json::parse(refused.body).value("field", ""), "output_model") << refused.body;
    const Json check = Json::parse(post("/v1/job-checks", request).body);
    EXPECT_EQ(check.at("ok"), false);
    EXPECT_EQ(check.at("findings").back().at("field"), "output_model") << check;
    request["output_model"] = "another";
    EXPECT_EQ(Json::parse(post("/v1/job-checks", request).body).at("ok"), true);
}

TEST_F(JobCheckRoutesTest, AJobOfAdaptersMovesTheModelOnceAndIsShownWithoutMakingOne) {
    Json request = job_request(4);
    const Json whole = Json::parse(post("/v1/job-checks", request).body);
    request["training"]["lora_rank"] = 1;
    const Json check = Json::parse(post("/v1/job-checks", request).body);
    EXPECT_EQ(check.at("ok"), true) << check;
    const auto back = check.at("from_facilities_bytes").get<double>(),
               all = whole.at("to_facilities_bytes").get<double>();
    EXPECT_GT(back, 0);
    EXPECT_DOUBLE_EQ(check.at("to_facilities_bytes"), all / 5 + back * 5 / 4)
        << "to both the model once and five adapters, where it was five models; four updates back";
    const auto script = post("/v1/scripts?facility=leonardo", request);
    ASSERT_EQ(script.status, 200) << script.body;
    EXPECT_NE(script.body.find("/ADAPTER"), std::string::npos) << script.body;
    EXPECT_NE(script.body.find("--adapter"), std::string::npos) << script.body;
    EXPECT_EQ(count("jobs"), 0);
}

}  // namespace
}  // namespace atl::dispatch
