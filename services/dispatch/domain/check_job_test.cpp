#include "services/dispatch/domain/check_job.h"

#include <gtest/gtest.h>

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

TEST(CheckJobTest, RanksThatDoNotStartAreTheLaunchers) {
    const auto rows = judge_check_job({}, 1, "srun: error: PMIx is not supported", facility());
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].name, "launcher");
    EXPECT_NE(rows[0].mend.find("--mpi=KIND"), std::string::npos) << rows[0].mend;
}

}  // namespace
}  // namespace atl::dispatch
