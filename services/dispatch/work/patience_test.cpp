// What a job waits for, and for how long.
#include <gtest/gtest.h>

#include "services/dispatch/testing/job_lifecycle_fixture.h"
#include "shared/http/client/client.h"

namespace atl::dispatch {
namespace {

using json::Json;

class PatienceTest : public JobLifecycleTest {};

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

}  // namespace
}  // namespace atl::dispatch
