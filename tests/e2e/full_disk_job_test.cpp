#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/e2e/small_federation.h"
#include "tests/integration/small_disk.h"

namespace atl {
namespace {

using json::Json;
using std::chrono::seconds;

bool within_two_minutes(const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(120);
    while (!holds() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return holds();
}

// Coordinator and sites have one disk, on which for a while there is not a byte left: the job goes on as if nothing had
// been, to the last bit.
TEST(FullDiskJobTest, AJobThatRunsWhenTheDiskIsFullGoesOnWhereThereIsRoomAndLosesNothing) {
    const SmallDisk disk;
    if (!disk.is_mounted()) GTEST_SKIP() << "only root can mount a small file system";
    e2e::SmallFederation federation;
    const Status ready = federation.set_up();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto submit = [&](const std::string& name) {
        Json spec = federation.job_spec(name, 6);
        spec["training"]["deterministic"] = true;
        const auto id = federation.coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        return *id;
    };
    // For whoever reads why a job did not end.
    const auto describe = [&](const std::string& id) {
        const auto job = federation.coordinator().job(id), page = federation.coordinator().rounds(id);
        const auto facilities = run_command({e2e::SmallFederation::program("atoll"), "facility", "list", "--json",
                                             "--state", federation.path("stack")});
        return (job.ok() ? job->dump(2) : "") + (page.ok() ? page->dump(2) : "") +
               (facilities.ok() ? facilities->out : "");
    };
    const auto follow = [&](const std::string& id) {
        const auto state = federation.coordinator().follow(id, seconds(400), [](const Json&) {});
        EXPECT_TRUE(state.ok()) << state.error().message << "\n" << describe(id);
        return state.ok() ? *state : "";
    };
    const auto rounds = [&](const std::string& id) {
        const auto page = federation.coordinator().rounds(id);
        return page.ok() ? page->at("items") : Json::array();
    };
    const std::string whole = submit("whole");
    ASSERT_EQ(follow(whole), "completed");

    const std::string disturbed = submit("disturbed");
    ASSERT_TRUE(within_two_minutes([&] { return rounds(disturbed).size() >= 3; })) << "its second round has begun";
    const auto kafka_ended = [&] {
        disk.fill();  // what is given back in between is taken too
        const auto status = run_command(
            {e2e::SmallFederation::program("atoll"), "status", "--json", "--state", federation.path("stack")});
        const auto list = json::parse(status.ok() ? status->out : "");
        for (const Json& one : list.ok() ? *list : Json::array())
            if (one.at("name") == "kafka") return one.at("state") == "stopped";
        return false;
    };
    ASSERT_TRUE(within_two_minutes(kafka_ended));
    const auto filled = federation.coordinator().job(disturbed);
    ASSERT_TRUE(filled.ok()) << filled.error().message;
    ASSERT_EQ(filled->at("state"), "running") << "it is under way when the disk is full";
    std::this_thread::sleep_for(seconds(10));
    EXPECT_NE(rounds(disturbed), Json::array()) << "it can be looked at";
    disk.make_room();
    const Status again = federation.up();
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(follow(disturbed), "completed");
    const Json expected = rounds(whole), found = rounds(disturbed);
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_EQ(expected.back()["version"].get<std::string>().size(), 64U);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i]["version"], expected[i]["version"]) << i;
}

}  // namespace
}  // namespace atl
