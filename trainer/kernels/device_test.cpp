#include "trainer/kernels/device.h"

#include <gtest/gtest.h>

#include <map>

namespace atl::kernels {
namespace {

struct DeviceCase {
    const char* what;
    RankDevices rank;
    DeviceChoice choice;
};

TEST(DeviceTest, ARankTakesTheDeviceOfItsLocalRankOrTheOneThatItWasGiven) {
    const std::vector<DeviceCase> cases = {
        {"alone with one", {0, 1, 1, {}}, {0, 1}},
        {"alone with several", {0, 1, 4, {}}, {0, 1}},
        {"one each", {2, 4, 4, {}}, {2, 1}},
        {"more devices than ranks", {1, 2, 8, {}}, {1, 1}},
        {"pinned by the launcher", {3, 4, 1, {{"CUDA_VISIBLE_DEVICES", "3"}}}, {0, 1}},
        {"pinned by its id", {1, 4, 1, {{"ROCR_VISIBLE_DEVICES", "GPU-5f3c"}}}, {0, 1}},
        {"all that the batch system gave", {1, 2, 2, {{"CUDA_VISIBLE_DEVICES", "4,6"}}}, {1, 1}},
        {"one device for all ranks", {3, 4, 1, {}}, {0, 4}},
        {"round again", {5, 8, 4, {}}, {1, 2}},
        {"one round and a half: who shares", {0, 3, 2, {}}, {0, 2}},
        {"one round and a half: who has one alone", {1, 3, 2, {}}, {1, 1}},
        {"a variable of the other vendor",
         {1, 4, 1, {{"CUDA_VISIBLE_DEVICES", "1"}, {"ROCR_VISIBLE_DEVICES", "0,1,2,3"}}},
         {0, 1}},
        {"a list within a list",
         {1, 2, 2, {{"HIP_VISIBLE_DEVICES", "0,1"}, {"ROCR_VISIBLE_DEVICES", "1,2,3"}}},
         {1, 1}},
    };
    for (const DeviceCase& one : cases) {
        const auto choice = choose_device(one.rank);
        ASSERT_TRUE(choice.ok()) << one.what << ": " << choice.error().message;
        EXPECT_EQ(choice->device, one.choice.device) << one.what;
        EXPECT_EQ(choice->ranks, one.choice.ranks) << one.what;
    }
}

TEST(DeviceTest, FewerDevicesThanTheVariablesNameIsAnErrorWithThem) {
    const std::vector<std::pair<RankDevices, std::string>> cases = {
        {{0, 2, 2, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}}, "CUDA_VISIBLE_DEVICES='0,1,2,3'"},
        {{1, 2, 1, {{"HIP_VISIBLE_DEVICES", "0,1,2"}, {"ROCR_VISIBLE_DEVICES", "4,5"}}},
         "HIP_VISIBLE_DEVICES='0,1,2', ROCR_VISIBLE_DEVICES='4,5'"},
        {{0, 1, 0, {{"CUDA_VISIBLE_DEVICES", ""}}}, "CUDA_VISIBLE_DEVICES=''"},
        {{0, 1, 0, {}}, "CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES"},
    };
    for (const auto& [rank, named] : cases) {
        const auto choice = choose_device(rank);
        ASSERT_FALSE(choice.ok()) << named;
        EXPECT_EQ(choice.error().code, ErrorCode::kInvalidArgument);
        EXPECT_NE(choice.error().message.find(named), std::string::npos) << choice.error().message;
    }
}

TEST(DeviceTest, AListEndsAtWhatIsNoDevice) {
    const std::vector<std::pair<std::string, int>> cases = {
        {"", 0},       {"0", 1},          {"0,1,2", 3},          {"1, 0", 2},          {"-1", 0},
        {"0,-1,1", 1}, {"NoDevFiles", 0}, {"GPU-8932f937,1", 2}, {"MIG-GPU-1/2/3", 1}, {"0,,1", 1},
    };
    for (const auto& [value, devices] : cases) {
        EXPECT_EQ((DeviceVariable{"CUDA_VISIBLE_DEVICES", value}.devices()), devices) << "'" << value << "'";
    }
}

TEST(DeviceTest, VariablesThatAreSetAreFoundAlsoWhenTheyAreEmpty) {
    const std::map<std::string, std::string> set = {{"ROCR_VISIBLE_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", ""}};
    const auto variables = device_variables([&](const char* name) -> const char* {
        const auto found = set.find(name);
        return found == set.end() ? nullptr : found->second.c_str();
    });
    ASSERT_EQ(variables.size(), 2U);
    EXPECT_EQ(variables[0].name, "CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(variables[0].value, "");
    EXPECT_EQ(variables[1].name, "ROCR_VISIBLE_DEVICES");
    EXPECT_EQ(variables[1].value, "2");
}

// container_advice in a process with these variables and that file.
std::string advice(std::string_view device, const std::map<std::string, std::string>& variables,
                   const std::string& file = "") {
    return container_advice(
        device,
        [&](const char* name) -> const char* {
            const auto found = variables.find(name);
            return found == variables.end() ? nullptr : found->second.c_str();
        },
        [&](const char* name) { return name == file; });
}

TEST(DeviceTest, EachKindOfContainerHasItsOptionForGpus) {
    const std::map<std::string, std::string> apptainer = {{"APPTAINER_CONTAINER", "/t.sif"},
                                                          {"SINGULARITY_CONTAINER", "/t.sif"}};
    EXPECT_EQ(advice("cuda", apptainer),
              "this is a container: on a host with a driver, start it with `apptainer run --nv`");
    EXPECT_NE(advice("hip", apptainer).find("`apptainer run --rocm`"), std::string::npos);
    EXPECT_NE(advice("cuda", {{"SINGULARITY_NAME", "t.sif"}}).find("`singularity run --nv`"), std::string::npos);
    EXPECT_NE(advice("cuda", {{"container", "podman"}}).find("--device nvidia.com/gpu=all"), std::string::npos);
    EXPECT_NE(advice("cuda", {}, "/.dockerenv").find("`docker run --gpus all`"), std::string::npos);
    EXPECT_NE(advice("hip", {}, "/.dockerenv").find("--device /dev/kfd"), std::string::npos);
}

TEST(DeviceTest, OutsideContainersNoOptionOfTheirsIsNamed) {
    EXPECT_EQ(advice("cuda", {{"container", "lxc"}, {"HOME", "/root"}}, "/etc/passwd"), "");
}

}  // namespace
}  // namespace atl::kernels
