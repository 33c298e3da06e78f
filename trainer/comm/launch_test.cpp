#include "trainer/comm/launch.h"

#include <gtest/gtest.h>

#include <map>

namespace atl::comm {
namespace {

bool ranks_with(const std::map<std::string, std::string>& variables) {
    return started_as_ranks([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

TEST(LaunchTest, APlainProcessIsAlone) {
    EXPECT_FALSE(ranks_with({}));
}

TEST(LaunchTest, ABatchScriptIsAloneWhateverItsAllocationHolds) {
    EXPECT_FALSE(ranks_with({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
}

TEST(LaunchTest, MpirunAndSrunStartRanks) {
    EXPECT_TRUE(ranks_with({{"OMPI_COMM_WORLD_SIZE", "2"}}));
    EXPECT_FALSE(ranks_with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}));
    EXPECT_TRUE(ranks_with({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "3"}}));
    EXPECT_FALSE(ranks_with({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
    EXPECT_TRUE(ranks_with({{"PMIX_RANK", "0"}}));
    EXPECT_TRUE(ranks_with({{"PMI_SIZE", "16"}}));
}

}  // namespace
}  // namespace atl::comm
