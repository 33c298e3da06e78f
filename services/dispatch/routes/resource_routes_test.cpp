#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

// What jobs ask of a facility with Slurm; nothing reaches one.
using ResourceRoutesTest = DispatchServiceTest;

TEST_F(ResourceRoutesTest, WhatAQueueNeverGivesIsRefusedBeforeAnythingStarts) {
    const Json facility = {
        {"name", "hawk"},
        {"transport", {{"kind", "ssh"}, {"host", "login"}}},
        {"batch", {{"kind", "slurm"}, {"queues", {{"gpu", {{"nodes_max", 4}, {"time_max", "24:00:00"}}}}}}},
        {"work_dir", "/work"}};
    ASSERT_EQ(post("/v1/facilities", facility).status, 201);
    const Json shown = get("/v1/facilities/hawk");
    EXPECT_EQ(shown.at("batch").at("default_queue"), "gpu");
    catalog_->add_version("it", 2, "hawk");
    Json request = job_request(1);
    request["participants"][0]["facility"] = "hawk";
    for (const auto& [resources, field] :
         std::vector<std::pair<Json, std::string>>{{{{"nodes", 5}}, "participants[0].resources.nodes"},
                                                   {{{"time", "1-00:00:01"}}, "participants[0].resources.time"},
                                                   {{{"queue", "cpu"}}, "participants[0].resources.queue"}}) {
        request["participants"][0]["resources"] = resources;
        const auto answer = post("/v1/jobs", request);
        EXPECT_EQ(answer.status, 422);
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), field) << answer.body;
    }
    request["participants"][0]["resources"] = {{"nodes", 2}, {"tasks_per_node", 4}, {"time", "24:00:00"}};
    const auto made = post("/v1/jobs", request);
    ASSERT_EQ(made.status, 201) << made.body;
    const Json participant = Json::parse(made.body).at("spec").at("participants").at(0);
    EXPECT_EQ(participant.at("ranks"), 8);
    EXPECT_EQ(participant.at("resources").at("nodes"), 2);
    request["participants"][1]["resources"] = {{"time", "1:00:00"}};
    EXPECT_EQ(Json::parse(post("/v1/jobs", request).body).value("field", ""), "participants[1].resources.time")
        << "the local batch system";
}

TEST_F(ResourceRoutesTest, TheBatchScriptOfAJobIsShownBeforeItIsSubmitted) {
    const Json facility = {{"name", "hawk"},
                           {"transport", {{"kind", "ssh"}, {"host", "login"}}},
                           {"batch", {{"kind", "slurm"}, {"queues", {{"gpu", {{"account", "A1"}}}}}}},
                           {"work_dir", "/work"},
                           {"environment", {{"HTTPS_PROXY", "http://proxy"}}}};
    ASSERT_EQ(post("/v1/facilities", facility).status, 201);
    catalog_->add_version("it", 2, "hawk");
    Json request = job_request(1);
    request["participants"][0] = {{"facility", "hawk"}, {"dataset", "it"}, {"resources", {{"nodes", 2}}}};
    const auto shown = post("/v1/scripts?facility=hawk", request);
    ASSERT_EQ(shown.status, 200) << shown.body;
    for (const char* line : {"#SBATCH --job-name=atoll-TASK-1", "#SBATCH --account=A1", "#SBATCH --nodes=2",
                             "export HTTPS_PROXY='http://proxy'", "  \"steps\": 3"})
        EXPECT_NE(shown.body.find("\n" + std::string(line)), std::string::npos) << line << shown.body;
    EXPECT_EQ(post("/v1/scripts?facility=leonardo", request).status, 422) << "no participant";
    EXPECT_EQ(post("/v1/scripts", request).status, 422);
    EXPECT_TRUE(get("/v1/jobs").at("items").empty()) << "nothing is kept";
    EXPECT_EQ(client(auth::Role::kViewer).call(Method::kPost, "/v1/scripts?facility=hawk", request.dump())->status,
              403);
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(reaches(job, "completed"));
    const Json rounds = get("/v1/jobs/" + job + "/rounds");
    for (const Json& task : rounds.at("items").at(1).at("tasks")) {
        const std::string id = task.at("id");
        const auto script = client().call(Method::kGet, "/v1/jobs/" + job + "/tasks/" + id + "/script").value();
        ASSERT_EQ(script.status, 200) << script.body;
        const auto work = work_dir(task.at("facility").get<std::string>());
        EXPECT_EQ(script.body, read_file(work / "tasks" / id / "1" / "job.sh").value());
    }
    EXPECT_EQ(client().call(Method::kGet, "/v1/jobs/" + job + "/tasks/none/script")->status, 404);
}

}  // namespace
}  // namespace atl::dispatch
