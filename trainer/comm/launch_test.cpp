#include "trainer/comm/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace atl::comm {
namespace {

using Variables = std::map<std::string, std::string>;

Environment make_environment(const Variables& variables) {
    return [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    };
}

bool ranks_with(const Variables& variables) {
    return started_as_ranks(make_environment(variables));
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

TEST(LaunchTest, ALauncherMayStartOneRankAlone) {
    const auto launched = [](const Variables& variables) { return started_by_launcher(make_environment(variables)); };
    EXPECT_TRUE(launched({{"OMPI_COMM_WORLD_SIZE", "1"}}));
    EXPECT_TRUE(launched({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
    EXPECT_TRUE(launched({{"PMIX_RANK", "0"}}));
    EXPECT_FALSE(launched({}));
    EXPECT_FALSE(launched({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}})) << "a batch script";
}

TEST(LaunchTest, TheLauncherSaysHowManyItStarted) {
    const auto size = [](const Variables& variables) { return launcher_size(make_environment(variables)); };
    EXPECT_EQ(size({}), 1);
    EXPECT_EQ(size({{"SLURM_NTASKS", "8"}}), 1) << "a batch script";
    EXPECT_EQ(size({{"SLURM_STEP_NUM_TASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), 2);
    EXPECT_EQ(size({{"PMIX_RANK", "0"}}), 1) << "it does not say";
}

TEST(LaunchTest, FewerRanksThanWereAskedForAreRefused) {
    EXPECT_TRUE(check_asked_ranks(3, make_environment({})).ok());
    EXPECT_TRUE(check_asked_ranks(8, make_environment({{"ATOLL_RANKS", "8"}})).ok());
    for (const int started : {1, 7, 9})
        EXPECT_EQ(describe(check_asked_ranks(started, make_environment({{"ATOLL_RANKS", "8"}})).error()),
                  "ranks: ATOLL_RANKS asks for 8, but the launcher started " + std::to_string(started) +
                      ": make it start as many");
}

TEST(LaunchTest, TheLauncherThatStartedTheRanksSaysTheRank) {
    const std::vector<std::pair<Variables, int>> cases = {
        {{}, 0},
        {{{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "3"}}, 0},
        {{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}}, 3},
        {{{"SLURM_PROCID", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}, 1},
        {{{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}}, 2},
        {{{"PMIX_RANK", "5"}}, 5},
    };
    for (const auto& [variables, rank] : cases) EXPECT_EQ(launcher_rank(make_environment(variables)), rank);
}

TEST(LaunchTest, TheLauncherThatStartedTheRanksSaysTheLocalRank) {
    const std::vector<std::tuple<Variables, std::string, int>> cases = {
        {{{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}}, "OMPI_COMM_WORLD_LOCAL_RANK", 3},
        {{{"MPI_LOCALRANKID", "1"}}, "MPI_LOCALRANKID", 1},
        {{{"PMI_LOCAL_RANK", "2"}}, "PMI_LOCAL_RANK", 2},
        {{{"SLURM_LOCALID", "7"}}, "SLURM_LOCALID", 7},
        {{{"SLURM_LOCALID", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "5"}}, "OMPI_COMM_WORLD_LOCAL_RANK", 5},
        {{{"SLURM_LOCALID", "0"}, {"MPI_LOCALRANKID", "4"}}, "MPI_LOCALRANKID", 4},
    };
    for (const auto& [variables, variable, rank] : cases) {
        const auto found = launcher_local_rank(make_environment(variables));
        ASSERT_TRUE(found) << variable;
        EXPECT_EQ(found->variable, variable);
        EXPECT_EQ(found->rank, rank) << variable;
    }
    EXPECT_FALSE(launcher_local_rank(make_environment({{"PMIX_RANK", "3"}})));
}

TEST(LaunchTest, TorchrunsProcessesAreCounted) {
    const auto size = [](const Variables& variables) { return torchrun_size(make_environment(variables)); };
    EXPECT_EQ(size({}), 1);
    EXPECT_EQ(size({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}}), 4);
    EXPECT_EQ(size({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), 1);
    EXPECT_EQ(size({{"WORLD_SIZE", "4"}}), 1) << "somebody else's";
}

}  // namespace
}  // namespace atl::comm
