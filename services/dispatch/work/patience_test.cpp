// What a job waits for, and for how long.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "services/dispatch/testing/fake_squeue.h"
#include "services/dispatch/testing/job_lifecycle_fixture.h"
#include "shared/http/client/client.h"

namespace atl::dispatch {
namespace {

using http::Method;
using json::Json;

class PatienceTest : public JobLifecycleTest {
  protected:
    // A facility with programs of its own, which are those of the others as they come.
    void add_facility(const std::string& name, const Json& environment = Json::object()) {
        const auto programs = directory_.path() / (name + "-programs");
        std::filesystem::create_directories(programs);
        for (const char* program : {"atoll", "atoll-trainer"})
            std::filesystem::copy_file(fake(program), programs / program);
        const auto added = client().post_json("/v1/facilities", {{"name", name},
                                                                 {"transport", {{"kind", "local"}}},
                                                                 {"batch", {{"kind", "local"}, {"slots", 2}}},
                                                                 {"programs", programs.string()},
                                                                 {"environment", environment},
                                                                 {"work_dir", work_dir(name).string()}});
        ASSERT_TRUE(added.ok()) << added.error().message;
        catalog_->add_version("it", 1, name);
    }
    // One that never answers where data is staged, and notes how often it was asked.
    void add_hung_facility(const std::string& name) {
        const auto hung = directory_.path() / (name + "-hung");
        std::filesystem::create_directories(hung);
        const std::string mkdir = "#!/bin/sh\necho >>" + (hung / "asked").string() + "\nexec sleep 1000\n";
        ASSERT_TRUE(write_file_atomic(hung / "mkdir", mkdir, 0755).ok());
        add_facility(name, {{"PATH", hung.string() + ":" + ::getenv("PATH")}});
    }
    std::size_t times_asked(const std::string& name) const {
        const auto text = read_file(directory_.path() / (name + "-hung") / "asked");
        return text.ok() ? text->size() : 0;
    }
    // One whose Slurm knows the partition "good" alone, and runs what it is given at once.
    void add_slurm_facility(const std::string& name) {
        const auto programs = directory_.path() / "slurm";
        std::filesystem::create_directories(programs);
        for (const auto& [program, text] : std::map<std::string, std::string>{{"squeue", kFakeSqueue},
                                                                              {"scancel", "#!/bin/sh\n"},
                                                                              {"sacct", "#!/bin/sh\n"},
                                                                              {"sbatch", R"sh(#!/bin/sh
for file; do :; done
grep -q '^#SBATCH --partition=good$' "$file" || {
    echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2
    exit 1
}
sh "$file" >batch.log 2>&1
echo 1
)sh"}})
            ASSERT_TRUE(write_file_atomic(programs / program, text, 0755).ok());
        const Json facility = {{"name", name},
                               {"transport", {{"kind", "local"}}},
                               {"batch", {{"kind", "slurm"}, {"queues", {{"main", {{"partition", "renamed"}}}}}}},
                               {"programs", fake("").parent_path().string()},
                               {"environment", {{"PATH", programs.string() + ":/usr/bin:/bin"}}},
                               {"work_dir", work_dir(name).string()}};
        const auto added = post("/v1/facilities", facility);
        ASSERT_EQ(added.status, 201) << added.body;
        catalog_->add_version("it", 1, name);
    }
    Json request_at(const std::string& facility, const std::string& name) {
        Json request = job_request(1);
        request["name"] = name;
        request["participants"] = Json::array({{{"facility", facility}, {"dataset", "it"}, {"dataset_version", 1}}});
        request["evaluation"] = {{"at", Json::array()}};
        return request;
    }
    // The next try is made at once instead of after ever longer pauses.
    void hurry() {
        auto connection = connect();
        EXPECT_TRUE(connection.query("UPDATE facilities SET retry_at = NULL").ok());
        EXPECT_TRUE(connection.query("UPDATE tasks SET next_step_at = now() WHERE lease_until < now()").ok());
    }
};

TEST_F(PatienceTest, AQueueThatIsGoneIsWaitedForUntilItsRecordIsChanged) {
    begin();
    ASSERT_NO_FATAL_FAILURE(add_slurm_facility("hawk"));
    Json request = request_at("hawk", "renamed");
    request["attempts_max"] = 1;
    const std::string job = submit(request);
    const auto waits = [&] { return get("/v1/jobs/" + job).at("waits").dump(); };
    ASSERT_TRUE(eventually([&] { return waits().find("does not exist at hawk") != std::string::npos; })) << waits();
    EXPECT_NE(waits().find("atoll facility set hawk --set batch.queues.main.partition=PARTITION"), std::string::npos)
        << waits();
    EXPECT_NE(waits().find("since"), std::string::npos) << waits();
    EXPECT_EQ(state_of(job), "running");
    const Json mended = {{"batch", {{"kind", "slurm"}, {"queues", {{"main", {{"partition", "good"}}}}}}}};
    const auto changed = client().call(Method::kPatch, "/v1/facilities/hawk", mended.dump(), {{{"If-Match", "*"}}, {}});
    ASSERT_EQ(changed->status, 200) << changed->body;
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
}

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

TEST_F(PatienceTest, AJobMovesWhileFourStagingsTakeTheirTimeElsewhere) {
    begin();
    std::vector<std::string> slow;
    for (const std::string name : {"slow1", "slow2", "slow3", "slow4"}) {
        ASSERT_NO_FATAL_FAILURE(add_facility(name));
        std::ofstream(directory_.path() / (name + "-programs/stage.waits")) << "";
        slow.push_back(submit(request_at(name, "at-" + name)));
    }
    const auto task_of = [&](const std::string& job) {
        const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
        return rounds.empty() || rounds.back().at("tasks").empty() ? Json::object() : rounds.back().at("tasks").at(0);
    };
    for (const std::string& job : slow)
        ASSERT_TRUE(eventually([&] { return task_of(job).contains("moving"); })) << task_of(job).dump(2);
    EXPECT_EQ(task_of(slow[0]).at("moving"), (Json{{"bytes_done", 7}, {"bytes_total", 42}}));
    const std::string job = submit(job_request(1));
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    for (const std::string& waiting : slow) EXPECT_EQ(task_of(waiting).at("step"), "staging");
    ASSERT_EQ(client().call(Method::kPost, "/v1/jobs/" + slow[0] + "/cancel", "{}")->status, 200);
    EXPECT_TRUE(reaches(slow[0], "cancelled"));
    EXPECT_TRUE(eventually([&] {
        return !std::filesystem::exists(work_dir("slow1") / "models" / (std::string(kBaseDigest) + ".moving"));
    })) << "its transfer has ended";
    for (const std::string name : {"slow1", "slow2", "slow3", "slow4"})
        std::filesystem::remove(directory_.path() / (name + "-programs/stage.waits"));
    for (std::size_t i = 1; i < slow.size(); ++i)
        EXPECT_TRUE(eventually([&] { return task_of(slow[i]).at("step") != "staging"; })) << task_of(slow[i]).dump(2);
}

TEST_F(PatienceTest, ASiteThatHangsTakesTwoWorkersAndNoMore) {
    lease_s_ = 30;  // a lease that runs out on a busy machine has its step done once more
    begin();
    ASSERT_NO_FATAL_FAILURE(add_hung_facility("hung"));
    for (int i = 0; i < 4; ++i) submit(request_at("hung", "hung" + std::to_string(i)));
    ASSERT_TRUE(eventually([&] { return times_asked("hung") == 2; }));
    const std::string job = submit(job_request(1));
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(times_asked("hung"), 2U);
}

TEST_F(PatienceTest, ThreeSitesThatHangLeaveTheFourWorkersToTheOthers) {
    lease_s_ = 300;  // a step there is not over before the job, however slow the machine is
    begin();
    const std::vector<std::string> hung = {"hung1", "hung2", "hung3"};
    for (const std::string& name : hung) {
        ASSERT_NO_FATAL_FAILURE(add_hung_facility(name));
        for (const char* which : {"a", "b"}) submit(request_at(name, name + which));
    }
    const auto all_asked = [&] {
        std::size_t all = 0;
        for (const std::string& name : hung) all += times_asked(name);
        return all;
    };
    ASSERT_TRUE(eventually([&] { return all_asked() >= 4; })) << "as many as there are workers";
    const std::string job = submit(job_request(1));
    EXPECT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    for (const std::string& name : hung) {
        EXPECT_LE(times_asked(name), 2U);
        EXPECT_EQ(get("/v1/facilities/" + name).at("silent_since"), nullptr) << "no step there is over yet";
    }
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

TEST_F(PatienceTest, AWorkDirectoryThatIsAwayIsWaitedForAndSaidOfTheFacilityAndItsTasks) {
    begin();
    set("train.waits");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    const auto task_at = [&](const std::string& facility) {
        const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
        for (const Json& task : rounds.back().at("tasks"))
            if (task.at("facility") == facility) return task;
        return Json();
    };
    const auto is_running = [&](const std::string& facility) {
        return task_at(facility).value("step", "") == "running";
    };
    ASSERT_TRUE(eventually([&] { return is_running("leonardo") && is_running("karolina"); }));
    EXPECT_FALSE(task_at("leonardo").contains("waiting"));
    EXPECT_EQ(get("/v1/jobs/" + job).at("waiting"), Json::array());
    std::filesystem::rename(work_dir("leonardo"), directory_.path() / "unmounted");
    ASSERT_TRUE(write_file_atomic(work_dir("leonardo"), "").ok());  // nobody can make it anew
    ASSERT_TRUE(eventually([&] { return get("/v1/facilities/leonardo").at("waiting").is_object(); }));
    const Json waiting = get("/v1/facilities/leonardo").at("waiting");
    EXPECT_NE(waiting.at("reason").get<std::string>().find("is its file system mounted?"), std::string::npos)
        << waiting;
    EXPECT_EQ(task_at("leonardo").at("waiting").at("reason"), waiting.at("reason"));
    EXPECT_EQ(get("/v1/jobs/" + job).at("waiting").at(0).at("facility"), "leonardo");
    // A job that comes now has nothing at the site that could be asked.
    Json later = job_request(1);
    later["name"] = later["output_model"] = "later";
    later["evaluation"] = {{"at", Json::array()}};
    const Json round = get("/v1/jobs/" + submit(later) + "/rounds").at("items").back();
    for (const Json& task : round.at("tasks"))
        EXPECT_EQ(task.contains("waiting"), task.at("facility") == "leonardo") << task;
    std::filesystem::remove(fake("train.waits"));
    EXPECT_TRUE(eventually([&] { return task_at("karolina").at("state") == "done"; })) << "it needs no other site";
    EXPECT_EQ(get("/v1/facilities/karolina").at("waiting"), nullptr);
    std::filesystem::create_directory_symlink("unmounted", directory_.path() / "mounted");
    std::filesystem::rename(directory_.path() / "mounted", work_dir("leonardo"));  // in place of the file, at once
    EXPECT_TRUE(eventually([&] { return hurry(), state_of(job) == "completed"; })) << task_at("leonardo").dump(2);
    EXPECT_EQ(task_at("leonardo").at("attempt"), 1);
    EXPECT_EQ(task_at("leonardo").at("attempt_error"), "");
    EXPECT_EQ(get("/v1/facilities/leonardo").at("waiting"), nullptr);
}

TEST_F(PatienceTest, AFileSystemThatIsAwayJustWhileATrainingBeginsCostsNoAttempt) {
    begin();
    std::filesystem::create_directories(work_dir("leonardo") / "datasets/it/1/train");
    std::filesystem::create_directories(work_dir("karolina") / "datasets/cs/1/train");
    set("train.lacks");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    const auto waits = [&] { return get("/v1/jobs/" + job).at("waits").dump(); };
    ASSERT_TRUE(eventually([&] {
        return waits().find("it is there now: its file system was away") != std::string::npos;
    })) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_EQ(state_of(job), "running");
    EXPECT_TRUE(eventually([&] { return hurry(), state_of(job) == "completed"; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2);
}

TEST_F(PatienceTest, DataThatIsNotThereFailsTheTraining) {
    begin();
    set("train.lacks");
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job + "/rounds").dump(2);
    EXPECT_NE(error_of(job).find("failed at attempt 1: exit code 2: atoll-trainer train: --data: there is no"),
              std::string::npos)
        << error_of(job);
}

// The parent directory is writable, so a new work directory could be made; it would lack everything that is running.
TEST_F(PatienceTest, AWorkDirectoryThatWasThereIsNotMadeAgain) {
    begin();
    set("train.waits");
    Json request = job_request(1);
    request["attempts_max"] = 1;
    request["evaluation"] = {{"at", Json::array()}};
    const std::string job = submit(request);
    ASSERT_TRUE(eventually([&] { return trainings().size() == 2; }));
    std::filesystem::rename(work_dir("leonardo"), directory_.path() / "unmounted");
    Json later = job_request(1);  // which has to stage there
    later["name"] = later["output_model"] = "later";
    later["evaluation"] = {{"at", Json::array()}};
    const std::string other = submit(later);
    ASSERT_TRUE(eventually([&] { return get("/v1/facilities/leonardo").at("waiting").is_object(); }));
    EXPECT_NE(get("/v1/facilities/leonardo").at("waiting").dump().find("is its file system mounted?"),
              std::string::npos);
    const Json checks = post("/v1/facilities/leonardo/check", Json::object()).json()->at("checks");
    EXPECT_NE(checks.dump().find("it was there before"), std::string::npos) << checks.dump(2);
    EXPECT_FALSE(std::filesystem::exists(work_dir("leonardo")));
    std::filesystem::remove(fake("train.waits"));
    std::filesystem::rename(directory_.path() / "unmounted", work_dir("leonardo"));
    EXPECT_TRUE(eventually([&] { return hurry(), state_of(job) == "completed" && state_of(other) == "completed"; }))
        << get("/v1/jobs/" + job + "/rounds").dump(2);
}

TEST_F(PatienceTest, AStoreThatIsAwayOrAFullQuotaHoldsUpNoOtherTaskThere) {
    begin();
    set("train.waits");
    Json request = job_request(1);
    request["evaluation"] = {{"at", Json::array()}};
    const std::string running = submit(request);
    ASSERT_TRUE(eventually([&] { return lines("train.pids").size() == 2; }));
    std::filesystem::remove_all(work_dir("leonardo") / "models");  // else there is nothing to stage
    set("stage.breaks", "cannot write model.safetensors: Disk quota exceeded");
    request["name"] = request["output_model"] = "second";
    request["participants"].erase(1);
    const std::string full = submit(request);
    const auto waits = [&] {
        return get("/v1/jobs/" + full + "/rounds").at("items").back().at("tasks").at(0).value("waiting", Json());
    };
    ASSERT_TRUE(eventually([&] { return waits().is_object(); }));
    EXPECT_NE(waits().at("reason").get<std::string>().find("no space or quota is left in"), std::string::npos)
        << waits();
    const Json leonardo = get("/v1/facilities/leonardo");
    EXPECT_EQ(leonardo.at("waiting"), nullptr);
    EXPECT_EQ(leonardo.at("task_waits").at("reason"), waits().at("reason")) << "the list of facilities says so";
    EXPECT_EQ(leonardo.at("task_waits").at("others"), 0);
    EXPECT_EQ(get("/v1/facilities/karolina").at("task_waits"), nullptr);
    EXPECT_EQ(client().call(http::Method::kPost, "/v1/jobs/" + running + "/cancel", "{}")->status, 200);
    EXPECT_TRUE(eventually([&] {
        return connect().query("SELECT 1 FROM tasks WHERE kind = 'train' AND state = 'cancelled'")->size() == 2;
    })) << "it is cancelled at the site";
}

TEST_F(PatienceTest, WhyATrainingMakesNoFirstStepIsSaidWhileItRuns) {
    begin();
    std::ofstream(fake("train.waits")) << "";
    const std::string job = submit(request_at("leonardo", "at-leonardo"));
    const auto task = [&] { return get("/v1/jobs/" + job + "/rounds").at("items").back().at("tasks").at(0); };
    ASSERT_TRUE(eventually([&] {
        const Json rounds = get("/v1/jobs/" + job + "/rounds").at("items");
        return !rounds.empty() && !rounds.back().at("tasks").empty() && task().value("step", "") == "running";
    }));
    EXPECT_FALSE(task().contains("waiting")) << task().dump(2);
    const std::string id = task().at("id");
    std::ofstream(work_dir("leonardo") / "tasks" / id / "1/stderr.log")
        << "atoll-trainer: rank 1 of 2 on n7 has waited 30 s for the first exchange between the ranks. Interfaces\n";
    const auto age_by_a_minute = [&] {  // again, as a worker may write its own down at the same time
        return connect()
            .query(
                "UPDATE attempts SET progress = jsonb_set(progress, '{since_ms}', to_jsonb((progress->>'since_ms')"
                "::bigint - 60000)) WHERE task_id = $1",
                {id})
            .ok();
    };
    ASSERT_TRUE(eventually([&] { return task().contains("waiting") || (age_by_a_minute() && false); })) << task();
    EXPECT_EQ(task().at("waiting").at("reason"),
              "rank 1 of 2 on n7 has waited 30 s for the first exchange between the ranks. Interfaces");
    std::filesystem::remove(fake("train.waits"));
    EXPECT_TRUE(reaches(job, "completed"));
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
