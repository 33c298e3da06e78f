#include "services/dispatch/domain/facility.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

Json valid_facility() {
    return {{"name", "leonardo"},
            {"transport", {{"kind", "local"}}},
            {"batch", {{"kind", "local"}, {"slots", 2}}},
            {"work_dir", "/scratch/atoll"}};
}

std::string wrong_field(const Json& value) {
    const auto result = parse_facility(value);
    return result.ok() ? "nothing" : result.error().field;
}

TEST(FacilityTest, WhatWasParsedComesBackUnchanged) {
    Json value = valid_facility();
    value["environment"] = {{"OMP_NUM_THREADS", "4"}};
    value["transport"] = {{"kind", "ssh"}, {"host", "user@login.example"}, {"config_file", "/etc/atoll/ssh"}};
    const auto facility = parse_facility(value);
    ASSERT_TRUE(facility.ok()) << facility.error().message;
    EXPECT_EQ(parse_facility(to_json(*facility)).value(), *facility);
    EXPECT_EQ(facility->batch.slots, 2);
}

TEST(FacilityTest, EachWrongMemberIsNamed) {
    const std::vector<std::pair<std::string, Json>> patches = {
        {"name", {{"name", "Leonardo!"}}},
        {"transport.kind", {{"transport", {{"kind", "pigeon"}}}}},
        {"transport.host", {{"transport", {{"kind", "ssh"}, {"host", "-oProxyCommand=x"}}}}},
        {"transport.port", {{"transport", {{"port", 22}}}}},
        {"batch.kind", {{"batch", {{"kind", "condor"}}}}},
        {"batch.slots", {{"batch", {{"slots", "two"}}}}},
        {"work_dir", {{"work_dir", "relative"}}},
        {"programs", {{"programs", "bin"}}},
        {"image", {{"image", "trainer.sif"}}},
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

TEST(FacilityTest, BatchSystemsOfLaterAreRefusedByName) {
    for (const char* kind : {"slurm", "pbs", "flux", "hq"}) {
        Json value = valid_facility();
        value["batch"]["kind"] = kind;
        const auto result = parse_facility(value);
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().field, "batch.kind");
        EXPECT_NE(result.error().message.find(kind), std::string::npos) << result.error().message;
    }
}

TEST(FacilityTest, WhatIsNotBuiltYetIsNamed) {
    Json value = valid_facility();
    value["image"] = "trainer.sif";
    EXPECT_TRUE(describe(parse_facility(value).error()).starts_with("image: "));
}

TEST(FacilityTest, ALauncherSaysTheNumberOfRanks) {
    for (const char* good : {"srun -n {ranks}", "mpirun --np {ranks} --host ${HOSTS}", ""})
        EXPECT_TRUE(check_launcher(good).ok()) << good;
    for (const char* bad : {"srun", "srun -n ${ranks}", "srun -n {rank}", "srun -n {ranks} -N {nodes}", "srun -n {"}) {
        EXPECT_EQ(check_launcher(bad).error().field, "launcher") << bad;
        EXPECT_NE(check_launcher(bad).error().message.find("{ranks}"), std::string::npos) << bad;
    }
    const Facility facility = parse_facility(valid_facility()).value();
    EXPECT_EQ(patch_facility(facility, {{"launcher", "srun"}}).error().field, "launcher");
    EXPECT_EQ(patch_facility(facility, {{"launcher", "mpirun"}}).value(), facility) << "the default by its name";
}

TEST(FacilityTest, APatchChangesOneMemberAndNeverTheName) {
    const Facility facility = parse_facility(valid_facility()).value();
    EXPECT_EQ(patch_facility(facility, {{"batch", {{"slots", 5}}}}).value().batch.slots, 5);
    EXPECT_EQ(patch_facility(facility, {{"name", "other"}}).error().field, "name");
    EXPECT_EQ(patch_facility(facility, {{"work_dir", nullptr}}).error().field, "work_dir");
}

}  // namespace
}  // namespace atl::dispatch
