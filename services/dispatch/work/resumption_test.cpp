#include "services/dispatch/testing/job_lifecycle_fixture.h"

namespace atl::dispatch {
namespace {

using json::Json;

TEST_F(JobLifecycleTest, FromItsSecondRoundOnAJobOfControlVariatesGoesOnFromWhatItsSitesKept) {
    begin();
    set("train.keeps", "control_variate.safetensors");
    Json request = job_request(2);
    request["strategy"] = {{"name", "fedavg"}, {"control_variate", 0.7}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    for (std::size_t round = 1; round <= 2; ++round)
        for (const Json& task : rounds.at(round).at("tasks")) {
            if (task.at("kind") != "train") continue;
            const std::string name = " of job " + job;
            const Json settings =
                Json::parse(read_file(fake("run." + task.at("id").get<std::string>() + ".json")).value());
            EXPECT_EQ(settings.at("control_variate"), 0.7);
            EXPECT_EQ(settings.at("update_base"), rounds.at(round).at("base"));
            EXPECT_EQ(settings.at("control_variate_name"), "round " + std::to_string(round) + name);
            EXPECT_EQ(settings.contains("control_variate_from"), round == 2) << settings;
            if (round == 1) continue;
            EXPECT_EQ(settings.at("control_variate_if_named"), "round 1" + name);
            const std::string from = settings.at("control_variate_from");
            EXPECT_EQ(from, work_dir(task.at("facility")) / ("kept/" + job + "/round1"));
            EXPECT_FALSE(settings.contains("optimizer_name") || settings.contains("rounding_error_name")) << settings;
        }
    const auto closed = aggregation_->closed_rounds();
    EXPECT_EQ(closed.at(0).at("strategy").at("control_variate"), 0.7);
}

TEST_F(JobLifecycleTest, AFailedJobGoesOnFromItsLastClosedRoundAndTrainsNothingTwice) {
    begin();
    Json request = job_request(3);
    request["attempts_max"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    set("train.waits");
    const std::string job = submit(request);
    ASSERT_TRUE(eventually([&] { return lines("runs").size() == 2; }));
    const auto resume = [&] { return post("/v1/jobs/" + job + "/resume", Json::object()); };
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(eventually([&] { return get("/v1/jobs/" + job).at("round") == 2; }));
    set("train.exits", "2");
    ASSERT_TRUE(reaches(job, "failed"));
    const std::int64_t round = get("/v1/jobs/" + job).at("round");
    const std::string base = get("/v1/jobs/" + job + "/rounds").at("items").back().at("base");
    std::filesystem::remove(fake("train.exits"));
    ASSERT_TRUE(connect().query("UPDATE jobs SET pruned = true").ok());
    ASSERT_TRUE(eventually([&] { return resume().status == 200; })) << resume().body;
    EXPECT_EQ(connect().query("SELECT 1 FROM jobs WHERE pruned")->size(), 0) << "its history goes on";
    EXPECT_EQ(resume().status, 200) << "safe to repeat";
    ASSERT_TRUE(reaches(job, "completed")) << error_of(job) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(resume().status, 409);
    EXPECT_EQ(error_of(job), "");
    for (const auto& [name, starts] : trainings()) EXPECT_EQ(starts, 1) << name;
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    ASSERT_EQ(rounds.size(), 4U);
    EXPECT_EQ(rounds.at(static_cast<std::size_t>(round)).at("base"), base);
    for (const Json& one : rounds) EXPECT_EQ(one.at("state"), "closed") << one.dump(2);
    const auto closed = aggregation_->closed_rounds();
    ASSERT_EQ(closed.size(), 3U);
    for (const Json& one : closed) EXPECT_EQ(one.at("updates").size(), 2U) << one;
    EXPECT_EQ(count(event_types(job), "atoll.job.resumed.v1"), 1U);
}

TEST_F(JobLifecycleTest, AFailedEvaluationOfTheNewestModelIsTriedAgainWhenTheJobGoesOn) {
    begin();
    Json request = job_request(2);
    request["attempts_max"] = 1;
    set("eval.exits", "2");
    set("train.waits");
    const std::string job = submit(request);
    const auto round = [&](std::size_t number) { return get("/v1/jobs/" + job + "/rounds").at("items").at(number); };
    ASSERT_TRUE(eventually([&] { return round(0).at("evaluated") == true; }));
    EXPECT_TRUE(round(0).contains("failed_evaluations")) << round(0).dump(2);
    EXPECT_TRUE(round(0).at("evaluations").empty());
    ASSERT_EQ(post("/v1/jobs/" + job + "/pause", Json::object()).status, 200);
    std::filesystem::remove(fake("eval.exits"));
    const std::size_t before = round(0).at("tasks").size();
    ASSERT_EQ(post("/v1/jobs/" + job + "/resume", Json::object()).status, 200);
    EXPECT_EQ(post("/v1/jobs/" + job + "/resume", Json::object()).status, 200) << "safe to repeat";
    ASSERT_TRUE(eventually([&] { return !round(0).at("evaluations").empty() && round(0).at("evaluated") == true; }))
        << round(0).dump(2);
    EXPECT_FALSE(round(0).contains("failed_evaluations")) << round(0).dump(2);
    EXPECT_EQ(round(0).at("tasks").size(), 2 * before);
    std::filesystem::remove(fake("train.waits"));
    EXPECT_TRUE(reaches(job, "completed")) << error_of(job);
}

TEST_F(JobLifecycleTest, EachEvaluationSeesAsManyRowsAsItsJobSays) {
    begin();
    Json request = job_request(1);
    request["evaluation"] = {{"val_samples", 192}};
    const std::string job = submit(request);
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    EXPECT_EQ(get("/v1/jobs/" + job).at("spec").at("evaluation").at("val_samples"), 192);
    int evaluations = 0;
    for (const std::string& line : lines("runs")) {
        if (line.find(" eval ") == std::string::npos) continue;
        ++evaluations;
        EXPECT_NE((line + " ").find(" --val-samples 192 "), std::string::npos) << line;
    }
    EXPECT_GT(evaluations, 0);
}

TEST_F(JobLifecycleTest, ATrainingThatValidatesIsGivenTheValidationRowsOfItsDataset) {
    begin();
    Json request = job_request(1);
    request["training"]["eval_every"] = 2;
    request["participants"][1]["training"]["val_samples"] = 64;
    request["evaluation"] = {{"val_samples", 192}};
    const std::string job = submit(request);
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    std::map<std::string, Json> settings;  // by the dataset that is validated on
    for (const std::string& line : lines("runs")) {
        const auto flag = line.find(" --val-data ");
        EXPECT_EQ(flag != std::string::npos, line.find(" train ") != std::string::npos) << line;
        if (flag == std::string::npos) continue;
        const std::string path = line.substr(flag + 12, line.find(' ', flag + 12) - flag - 12);
        const std::string place = path.substr(path.find("/datasets/"));
        EXPECT_NE(line.find(place.substr(0, place.rfind('/')) + "/train "), std::string::npos) << line;
        const std::string attempt = line.substr(line.find("atoll-") + 6);
        settings[place] = Json::parse(
            read_file(fake("run." + attempt.substr(0, attempt.rfind('-', attempt.find(' '))) + ".json")).value());
    }
    ASSERT_EQ(settings.size(), 2U);
    const Json &it = settings["/datasets/it/1/validation"], &cs = settings["/datasets/cs/1/validation"];
    EXPECT_EQ(it.value("eval_every", 0), 2);
    EXPECT_EQ(it.value("val_samples", 0), 192) << "as its evaluations";
    EXPECT_EQ(cs.value("val_samples", 0), 64) << "its own";
}

TEST_F(JobLifecycleTest, OneModelThatCannotBeEvaluatedCostsTheOthersNothing) {
    begin();
    set("eval.waits");
    Json request = job_request(1);
    request["evaluation"]["models"] = "all";
    const std::string job = submit(request);
    const auto rounds = [&] { return get("/v1/jobs/" + job + "/rounds").at("items"); };
    // The first update that is handed in is damaged.
    const auto first_update = [&] {
        const Json newest = rounds().back();
        for (const Json& task : newest.at("tasks"))
            if (task.contains("version")) return task.at("version").get<std::string>();
        return std::string();
    };
    std::string damaged;
    ASSERT_TRUE(eventually([&] { return !(damaged = first_update()).empty(); }));
    set("eval.fails_for", damaged);
    std::filesystem::remove(fake("eval.waits"));
    ASSERT_TRUE(reaches(job, "completed")) << error_of(job);
    const Json round = rounds().at(1);
    EXPECT_EQ(round.at("failed_evaluations").at("partly"), round.at("failed_evaluations").at("count")) << round.dump(2);
    const std::string reason = round.at("failed_evaluations").at("reason");
    EXPECT_NE(reason.find("1 of 3 models was not evaluated: "), std::string::npos) << reason;
    EXPECT_NE(reason.find("exit code 2: atoll-trainer eval: --model: the weights are damaged"), std::string::npos)
        << reason;
    for (const Json& one : round.at("evaluations")) EXPECT_NE(one.at("model"), damaged) << one;
    EXPECT_FALSE(round.at("evaluations").empty());
}

TEST_F(JobLifecycleTest, AJobThatGoesBackTrainsAsManyRoundsAsItsSpecificationSaysAndSaysWhichIsWhich) {
    begin();
    Json request = job_request(2);
    request["evaluation"] = {{"at", Json::array()}};
    set("train.waits");
    const std::string job = submit(request);
    ASSERT_TRUE(eventually([&] { return lines("runs").size() == 2; }));
    ASSERT_EQ(post("/v1/jobs/" + job + "/pause", Json::object()).status, 200);
    const auto resumed = post("/v1/jobs/" + job + "/resume", {{"from_round", 0}});
    ASSERT_EQ(resumed.status, 200) << resumed.body;
    const auto place = [&](const Json& shown) {
        return std::vector<std::int64_t>{shown.at("round"), shown.at("index"), shown.at("rounds")};
    };
    EXPECT_EQ(place(*resumed.json()), (std::vector<std::int64_t>{2, 1, 2}));
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(reaches(job, "completed")) << error_of(job);
    EXPECT_EQ(place(get("/v1/jobs/" + job)), (std::vector<std::int64_t>{3, 2, 2}));
    std::vector<std::int64_t> indexes;
    const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
    for (const Json& round : rounds) indexes.push_back(round.at("index"));
    EXPECT_EQ(indexes, (std::vector<std::int64_t>{0, 1, 1, 2}));
    const Json events = get("/v1/jobs/" + job + "/events").at("items");
    for (const Json& event : events) {
        if (event.at("type") != "atoll.round.opened.v1") continue;
        EXPECT_EQ(event.at("data").at("rounds"), 2) << event;
    }
}

TEST_F(JobLifecycleTest, WhoeverIsNotAllowedAnyMoreDoesNotGoOnTrainingThere) {
    begin();
    for (const char* name : {"leonardo", "karolina"}) set_allowed(name, "bob");
    set("train.waits");
    Json request = job_request(2);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = client_of("bob").post_json("/v1/jobs", request).value().at("id");
    ASSERT_TRUE(eventually([&] { return lines("runs").size() == 2; }));
    const auto order = [&](const std::string& verb, const Json& body = Json::object()) {
        return client_of("bob").call(http::Method::kPost, "/v1/jobs/" + job + verb, body.dump()).value();
    };
    ASSERT_EQ(order("/pause").status, 200);
    set_allowed("karolina", "eve");
    const auto refused = order("/resume");
    EXPECT_EQ(refused.status, 409) << "karolina's update is needed";
    EXPECT_NE(refused.body.find("karolina"), std::string::npos) << refused.body;
    EXPECT_EQ(state_of(job), "paused");
    set_allowed("karolina", "bob");
    ASSERT_EQ(order("/resume").status, 200);
    set_allowed("karolina", "eve");
    std::filesystem::remove(fake("train.waits"));
    ASSERT_TRUE(reaches(job, "paused")) << "the round that is under way ends as it was begun, and no other is opened";
    EXPECT_NE(error_of(job).find("karolina"), std::string::npos) << error_of(job);
    EXPECT_EQ(lines("runs").size(), 2U);
    EXPECT_EQ(order("/resume").status, 409);
    ASSERT_EQ(order("/resume", {{"without", {"karolina"}}}).status, 200);
    ASSERT_TRUE(reaches(job, "completed")) << error_of(job);
    EXPECT_EQ(error_of(job), "");
    EXPECT_EQ(lines("runs").size(), 3U) << "one more, at leonardo";
}

TEST_F(JobLifecycleTest, AnOpenRoundOfACancelledJobIsCancelledAndSaysSinceWhen) {
    begin();
    set("train.waits");
    const std::string job = submit(job_request(1));
    ASSERT_TRUE(eventually([&] { return trainings().size() == 2; }));
    EXPECT_EQ(get("/v1/jobs/" + job + "/rounds").at("items").back().at("state"), "training");
    EXPECT_EQ(post("/v1/jobs/" + job + "/cancel", Json::object()).status, 200);
    const Json round = get("/v1/jobs/" + job + "/rounds").at("items").back();
    EXPECT_EQ(round.at("state"), "cancelled");
    EXPECT_TRUE(round.at("closed_at").is_string());
    std::filesystem::remove(fake("train.waits"));
}

}  // namespace
}  // namespace atl::dispatch
