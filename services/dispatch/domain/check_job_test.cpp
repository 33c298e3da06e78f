#include "services/dispatch/domain/check_job.h"

#include <gtest/gtest.h>

#include "services/dispatch/domain/facility_check.h"

namespace atl::dispatch {
namespace {

Facility facility() {
    Facility one;
    one.name = "leonardo";
    one.batch.kind = BatchKind::kSlurm;
    return one;
}

TEST(CheckJobTest, RanksThatDoNotReachOneAnotherAreToldTheVariableThatMendsIt) {
    const std::string said =
        "atoll-trainer: rank 1 of 2 on lrdn0421.leonardo.local has waited 120 s for the first exchange between the "
        "ranks. "
        "Either another rank does not start, or MPI uses a network interface by which the machines do not reach each "
        "other, such as the bridge docker0. Interfaces here: ib0 10.128.0.21, docker0 172.17.0.1. To choose one, set "
        "OMPI_MCA_btl_tcp_if_include=ib0 (with UCX: UCX_NET_DEVICES=ib0) in the environment of all ranks; the limit is "
        "over";
    const auto rows = judge_check_job({}, 1, said, facility());
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].name, "network");
    EXPECT_EQ(rows[0].state, CheckState::kFail);
    EXPECT_NE(rows[0].seen.find("UCX_NET_DEVICES=ib0"), std::string::npos) << "the whole of it: " << rows[0].seen;
    EXPECT_NE(rows[0].mend.find("atoll facility set leonardo --env OMPI_MCA_btl_tcp_if_include=ib0,"),
              std::string::npos)
        << rows[0].mend;
}

TEST(SiteRowsTest, AWorkDirectoryThatIsSomebodyElsesIsToBeGivenAway) {
    const auto mend = [](const char* fact, const char* said) {
        for (const CheckRow& row : judge_site({{fact, said}, {"user", "ada"}}, {}, facility(), {}))
            if (row.name == "work_dir") return row.mend;
        return std::string();
    };
    EXPECT_TRUE(mend("no_write", "touch: Permission denied").starts_with("give it to ada there, or take another"));
    EXPECT_TRUE(mend("no_write", "touch: No space left on device").starts_with("free some"));
    EXPECT_TRUE(mend("no_work_dir", "mkdir: Permission denied").starts_with("make it and give it to ada there"));
    EXPECT_TRUE(mend("no_work_dir", "mkdir: No such file or directory").starts_with("make what it lies in"));
}

TEST(CheckJobTest, RanksThatDoNotStartAreTheLaunchers) {
    const auto rows = judge_check_job({}, 1, "srun: error: PMIx is not supported", facility());
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].name, "launcher");
    EXPECT_NE(rows[0].mend.find("--mpi=KIND"), std::string::npos) << rows[0].mend;
}

}  // namespace
}  // namespace atl::dispatch
