#include "services/dispatch/sites/job_script.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

constexpr const char* kEnd = R"sh(}
record() {
    printf '{"exit_code":%d,"finished_unix_s":%d}\n' "$1" "$(date +%s)" >exit.json.tmp
    sync exit.json.tmp
    mv exit.json.tmp exit.json
}
trap : TERM INT
: >started
( job ) >stdout.jsonl 2>stderr.log </dev/null
record "$?"
)sh";

TEST(JobScriptTest, CommandsRunInTheAttemptsDirectoryUntilOneFails) {
    const BatchJob job{.ref = {"atoll-t-1", "/work/it's"},
                       .environment = {{"CA", "/etc/$ca.pem"}, {"KEY", "it's"}},
                       .commands = {{"mkdir", "-p", "out"}, {"/bin/atoll-trainer", "eval", "--data", "a b"}}};
    EXPECT_EQ(render_job_script(job), std::string(R"sh(#!/bin/sh
# Attempt atoll-t-1
umask 077
cd '/work/it'\''s' || exit 1
export ATOLL_BATCH_JOB='atoll-t-1'
export CA='/etc/$ca.pem'
export KEY='it'\''s'
job() {
'mkdir' '-p' 'out' || return
'/bin/atoll-trainer' 'eval' '--data' 'a b' || return
)sh") + kEnd);
}

TEST(JobScriptTest, ATrainingHasItsSettingsItsLauncherAndTheStateThatItGoesOnFrom) {
    const BatchJob job{.ref = {"atoll-t-2", "/work/tasks/t/2"},
                       .commands = {{"atoll-trainer", "train", "--resume"}},
                       .ranks = 4,
                       .launcher = "srun -n {ranks} --ntasks={ranks}",
                       .run_json = {{"lr", 0.5}},
                       .resumed_attempt = "/work/tasks/t/1"};
    EXPECT_EQ(render_job_script(job), std::string(R"sh(#!/bin/sh
# Attempt atoll-t-2
umask 077
cd '/work/tasks/t/2' || exit 1
export ATOLL_BATCH_JOB='atoll-t-2'
job() {
cat >run.json <<'ATOLL_RUN_JSON'
{
  "lr": 0.5
}
ATOLL_RUN_JSON
mv '/work/tasks/t/1'/out.state out.state 2>/dev/null
srun -n 4 --ntasks=4 'atoll-trainer' 'train' '--resume' || return
)sh") + kEnd);
}

TEST(JobScriptTest, WithoutALauncherMpirunStartsAsManyRanksAsOneMachineBears) {
    const std::string script =
        render_job_script({.ref = {"atoll-t-1", "/work"}, .commands = {{"atoll-trainer", "train"}}, .ranks = 2});
    EXPECT_EQ(script, std::string(R"sh(#!/bin/sh
# Attempt atoll-t-1
umask 077
cd '/work' || exit 1
export ATOLL_BATCH_JOB='atoll-t-1'
job() {
most=$((16 * $(nproc)))
[ 2 -le "$most" ] || {
    echo "atoll-trainer train: ranks: 2 are too many for this machine; of $(nproc) cores: at most $most" >&2
    return 2
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_plm_rsh_agent=/bin/false PRTE_MCA_plm_ssh_agent=/bin/false
mpirun -n 2 'atoll-trainer' 'train' || return
)sh") + kEnd);
}

}  // namespace
}  // namespace atl::dispatch
