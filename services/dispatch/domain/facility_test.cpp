#include "services/dispatch/domain/facility.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "shared/config/config.h"

namespace atl::dispatch {
namespace {

using json::Json;

Json valid_facility() {
    return {{"name", "leonardo"},
            {"transport", {{"kind", "local"}}},
            {"batch", {{"kind", "local"}, {"slots", 2}}},
            {"work_dir", "/scratch/atoll"}};
}

const std::string kHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJiQ/swRvuGsw1MFv0Ry5qRll8WwiEUr2gGFZl+NMCSo";

std::string wrong_field(const Json& value) {
    const auto result = parse_facility(value);
    return result.ok() ? "nothing" : result.error().field;
}

TEST(FacilityTest, WhatWasParsedComesBackUnchanged) {
    Json value = valid_facility();
    value["environment"] = {{"OMP_NUM_THREADS", "4"}};
    value["transport"] = {{"kind", "ssh"}, {"host", "user@login.example"}, {"config_file", "/etc/atoll/ssh"}};
    value["transport"]["host_key"] = kHostKey;
    const auto facility = parse_facility(value);
    ASSERT_TRUE(facility.ok()) << facility.error().message;
    EXPECT_EQ(parse_facility(to_json(*facility)).value(), *facility);
    EXPECT_EQ(facility->batch.slots, 2);
    EXPECT_EQ(facility->logs.give, LogsGiven::kAll);
    EXPECT_EQ(facility->owner, "");
    EXPECT_EQ(facility->transport.data, DataPath::kStore);
    value["transport"]["data"] = nullptr;
    EXPECT_EQ(parse_facility(value)->transport.data, DataPath::kStore);
    value["transport"]["data"] = "ssh";
    value.update({{"owner", "ada"}, {"allow", {"bo", "*"}}, {"logs", {{"return", "errors"}, {"bytes_max", 2048}}}});
    const Facility owned = parse_facility(value).value();
    EXPECT_EQ(parse_facility(to_json(owned)).value(), owned);
    EXPECT_EQ(owned.allow, (std::vector<std::string>{"bo", "*"}));
    EXPECT_EQ(owned.logs, (LogPolicy{LogsGiven::kErrors, 2048}));
    EXPECT_EQ(owned.transport.data, DataPath::kSsh);
    EXPECT_EQ(moved_member(*facility, owned), "") << "another way for the same data to the same place";
    EXPECT_EQ(patch_facility(owned, {{"transport", {{"data", nullptr}}}})->transport.data, DataPath::kStore);
}

TEST(FacilityTest, EachWrongMemberIsNamed) {
    const std::vector<std::pair<std::string, Json>> patches = {
        {"name", {{"name", "Leonardo!"}}},
        {"transport.kind", {{"transport", {{"kind", "pigeon"}}}}},
        {"owner", {{"owner", "Ada Byron"}}},
        {"allow", {{"allow", "*"}}},
        {"allow", {{"allow", {"**"}}}},
        {"logs.return", {{"logs", {{"return", "some"}}}}},
        {"logs.bytes_max", {{"logs", {{"bytes_max", 1}}}}},
        {"transport.host", {{"transport", {{"kind", "ssh"}, {"host", "-oProxyCommand=x"}}}}},
        {"transport.host_key", {{"transport", {{"kind", "ssh"}, {"host", "login"}, {"host_key", "SHA256:abc"}}}}},
        {"transport.host_key", {{"transport", {{"host_key", kHostKey}}}}},
        {"transport.data", {{"transport", {{"kind", "ssh"}, {"host", "login"}, {"data", "pigeon"}}}}},
        {"transport.data", {{"transport", {{"data", "ssh"}}}}},
        {"transport.host", {{"transport", {{"host", "login"}}}}},
        {"batch.queues", {{"batch", {{"kind", "slurm"}, {"slots", nullptr}}}}},
        {"transport.port", {{"transport", {{"port", 22}}}}},
        {"batch.kind", {{"batch", {{"kind", "condor"}}}}},
        {"batch.slots", {{"batch", {{"slots", "two"}}}}},
        {"work_dir", {{"work_dir", "relative"}}},
        {"programs", {{"programs", "bin"}}},
        {"image", {{"image", "trainer.sif"}}},
        {"image.path", {{"image", {{"path", "trainer.sif"}}}}},
        {"programs", {{"image", {{"path", "/trainer.sif"}}}, {"programs", "/bin"}}},
        {"work_dir", {{"image", {{"path", "/trainer.sif"}}}, {"work_dir", "/a:b"}}},
        {"environment.A-B", {{"environment", {{"A-B", "x"}}}}},
        {"environment.N", {{"environment", {{"N", 1}}}}},
        {"colour", {{"colour", "blue"}}},
    };
    for (const auto& [field, patch] : patches) {
        Json value = valid_facility();
        value.merge_patch(patch);
        EXPECT_EQ(wrong_field(value), field) << value.dump();
    }
}

TEST(FacilityTest, EvaluationsAndPreparationsAskForOneProcessOfAQueue) {
    Json value = valid_facility();
    value["batch"] = {{"kind", "slurm"}, {"queues", {{"gpu", Json::object()}, {"cpu", {{"time_max", "4:00:00"}}}}}};
    value["batch"]["default_queue"] = "gpu";
    value["evaluation"] = {{"queue", "cpu"}, {"time", "0:30:00"}};
    const auto facility = parse_facility(value);
    ASSERT_TRUE(facility.ok()) << describe(facility.error());
    EXPECT_EQ(parse_facility(to_json(*facility)).value(), *facility);
    EXPECT_EQ(facility->evaluation.time_s, 1800);
    EXPECT_EQ(facility->preparation, Resources());
    for (const auto& [field, patch] :
         std::map<std::string, Json>{{"evaluation.tasks_per_node", {{"tasks_per_node", 2}}},
                                     {"evaluation.nodes", {{"nodes", 2}}},
                                     {"evaluation.queue", {{"queue", "fast"}}},
                                     {"evaluation.time", {{"time", "5:00:00"}}}}) {
        Json wrong = value;
        wrong["evaluation"].update(patch);
        EXPECT_EQ(wrong_field(wrong), field);
    }
}

TEST(FacilityTest, QueuesMayChangeWhileTasksRun) {
    Json value = valid_facility();
    value["batch"] = {{"kind", "slurm"}, {"queues", {{"gpu", {{"account", "A1"}}}}}};
    const Facility before = parse_facility(value).value();
    const Facility after = patch_facility(before, {{"batch", {{"queues", {{"gpu", {{"account", "A2"}}}}}}}}).value();
    EXPECT_EQ(after.batch.queues.at("gpu").account, "A2");
    EXPECT_EQ(moved_member(before, after), "");
    EXPECT_EQ(moved_member(parse_facility(valid_facility()).value(), after), "batch");
    Facility more = parse_facility(valid_facility()).value();
    ++more.batch.slots;
    EXPECT_EQ(moved_member(parse_facility(valid_facility()).value(), more), kSlotsMember);
}

TEST(FacilityTest, AnImageComesAndGoesByAPatch) {
    const Facility native = parse_facility(valid_facility()).value();
    const Facility image = patch_facility(native, {{"image", {{"path", "/trainer.sif"}}}}).value();
    EXPECT_EQ(parse_facility(to_json(image)).value(), image);
    EXPECT_EQ(moved_member(native, image), "");
    EXPECT_TRUE(is_other_trainer(native, image));
    EXPECT_EQ(patch_facility(image, {{"image", {{"sha256", std::string(64, 'a')}}}}).value().image->path,
              "/trainer.sif");
    EXPECT_EQ(patch_facility(image, {{"image", nullptr}}).value(), native);
}

TEST(FacilityTest, MpirunInTheImageNeedsOneAndStartsOneNode) {
    Json value = valid_facility();
    value["launcher"] = "mpirun-in-image";
    EXPECT_EQ(check_launcher(parse_facility(value).value()).error().field, "launcher");
    value["image"] = {{"path", "/trainer.sif"}};
    const Facility facility = parse_facility(value).value();
    EXPECT_TRUE(check_launcher(facility).ok());
    EXPECT_EQ(check_resources({.nodes = 2}, facility, "resources").error().field, "resources.nodes");
    EXPECT_EQ(patch_facility(facility, {{"image", nullptr}}).error().field, "launcher");
}

TEST(FacilityTest, ALauncherSaysTheNumberOfRanks) {
    Facility facility = parse_facility(valid_facility()).value();
    const auto refusal = [&](const std::string& launcher) {
        facility.launcher = launcher;
        const Status status = check_launcher(facility);
        EXPECT_TRUE(status.ok() || status.error().field == "launcher") << launcher;
        return status.ok() ? "" : status.error().message;
    };
    for (const char* good : {"srun -n {ranks}", "mpirun --np {ranks} --host ${HOSTS}", ""})
        EXPECT_EQ(refusal(good), "") << good;
    for (const char* bad : {"srun", "srun -n ${ranks}", "srun -n {rank}", "srun -n {ranks} -N {nodes}", "srun -n {"})
        EXPECT_NE(refusal(bad).find("{ranks}"), std::string::npos) << bad;
    facility.batch.kind = BatchKind::kSlurm;
    for (const char* good : {"srun --mpi=pmix_v4", "mpirun", "mpiexec -n {ranks}", ""}) EXPECT_EQ(refusal(good), "");
    for (const char* bad : {"srun -n {rank}", "mpiexec"}) EXPECT_NE(refusal(bad), "") << bad;
    const Facility local = parse_facility(valid_facility()).value();
    EXPECT_EQ(patch_facility(local, {{"launcher", "srun"}}).error().field, "launcher");
    EXPECT_EQ(patch_facility(local, {{"launcher", "mpirun"}}).value(), local) << "the default by its name";
}

TEST(FacilityTest, TheExamplesAreRecords) {
    int examples = 0;
    for (const auto& file : std::filesystem::directory_iterator(ATOLL_EXAMPLES "/facilities")) {
        Json value = config::load(file.path()).value();
        value["name"] = "example";
        const auto facility = parse_facility(value);
        ASSERT_TRUE(facility.ok()) << file.path() << ": " << describe(facility.error());
        EXPECT_TRUE(check_launcher(*facility).ok());
        ++examples;
    }
    EXPECT_EQ(examples, 3);
}

TEST(FacilityTest, SeveralNodesTakeALauncherForThem) {
    Json value = valid_facility();
    value["batch"] = {{"kind", "slurm"}, {"queues", {{"gpu", Json::object()}}}};
    EXPECT_TRUE(check_resources({.nodes = 2}, parse_facility(value).value(), "resources").ok());
    value["launcher"] = "mpirun";
    const Facility facility = parse_facility(value).value();
    EXPECT_TRUE(check_resources({.tasks_per_node = 2}, facility, "resources").ok());
    EXPECT_EQ(check_resources({.nodes = 2}, facility, "resources").error().field, "resources.nodes");
}

TEST(FacilityTest, APatchChangesOneMemberAndNeverTheName) {
    const Facility facility = parse_facility(valid_facility()).value();
    EXPECT_EQ(patch_facility(facility, {{"batch", {{"slots", 5}}}}).value().batch.slots, 5);
    EXPECT_EQ(patch_facility(facility, {{"name", "other"}}).error().field, "name");
    EXPECT_EQ(patch_facility(facility, {{"work_dir", nullptr}}).error().field, "work_dir");
}

TEST(FacilityTest, AMemberThatStandsTooFarUpIsToldItsPlace) {
    const auto refusal = [](const char* member) {
        json::Json record = to_json(parse_facility({{"name", "alfa"},
                                                    {"transport", {{"kind", "local"}}},
                                                    {"batch", {{"kind", "local"}}},
                                                    {"work_dir", "/work"}})
                                        .value());
        record[member] = "ssh";
        return describe(parse_facility(record).error());
    };
    EXPECT_EQ(refusal("data"), "data: unknown field; did you mean transport.data?");
    EXPECT_EQ(refusal("default_queue"), "default_queue: unknown field; did you mean batch.default_queue?");
    EXPECT_EQ(refusal("partition"), "partition: unknown field; did you mean batch.queues.NAME.partition?");
    EXPECT_EQ(refusal("workdir"), "workdir: unknown field; did you mean work_dir?");
}

}  // namespace
}  // namespace atl::dispatch
