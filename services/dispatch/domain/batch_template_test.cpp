#include "services/dispatch/domain/batch_template.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

const TemplateValues kValues = {"#SBATCH --nodes=2\n#SBATCH --ntasks=8\n#SBATCH --time=2:00:00\n", "exit 0\n",
                                "export A='1'\nexport B='2'\n", "/scratch/me/tasks/t/1"};

// As xFFL's have it.
constexpr const char* kLeonardo = R"(#!/bin/bash
#SBATCH --job-name=xffl
#SBATCH --error=%j.err
#SBATCH --output=%j.out
#SBATCH --time=04:00:00
#SBATCH -A EUHPC_1 --partition=boost_usr_prod
#SBATCH --nodes=1 --gres=gpu:4 --ntasks-per-node=1
#SBATCH -n 4
#SBATCH --exclusive

module load openmpi
{{ streamflow_environment }}
cd {{ streamflow_workdir }}
srun sh -c "{{ streamflow_command }}"
)";

TEST(BatchTemplateTest, ATemplateOfStreamFlowIsReadAsItIs) {
    ASSERT_TRUE(check_template(kLeonardo, "batch.template").ok()) << check_template(kLeonardo, "").error().message;
    EXPECT_EQ(fill_template(kLeonardo, kValues), R"(#!/bin/bash
# replaced: #SBATCH --job-name=xffl
# replaced: #SBATCH --error=%j.err
# replaced: #SBATCH --output=%j.out
# replaced: #SBATCH --time=04:00:00
#SBATCH -A EUHPC_1 --partition=boost_usr_prod
#SBATCH --gres=gpu:4
# replaced: #SBATCH --nodes=1 --gres=gpu:4 --ntasks-per-node=1
# replaced: #SBATCH -n 4
#SBATCH --exclusive

#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --time=2:00:00
module load openmpi
export A='1'
export B='2'
cd /scratch/me/tasks/t/1
# replaced: srun sh -c "{{ streamflow_command }}"
set +eu
exit 0
)");
    EXPECT_EQ(replaced_lines(kLeonardo),
              (std::vector<std::string>{"#SBATCH --job-name=xffl", "#SBATCH --error=%j.err", "#SBATCH --output=%j.out",
                                        "#SBATCH --time=04:00:00", "#SBATCH --nodes=1 --gres=gpu:4 --ntasks-per-node=1",
                                        "#SBATCH -n 4", "srun sh -c \"{{ streamflow_command }}\""}));
}

// Tabs and comments behind options, an option that is commented out, all GPUs of a node.
constexpr const char* kKarolina =
    "#!/bin/bash\n"
    "\n"
    "#SBATCH --job-name=federation\n"
    "#SBATCH --output=federation.out\n"
    "#SBATCH --error=federation.err\n"
    "#SBATCH --nodes=1\n"
    "#SBATCH --time=00:20:00\t\t# of the express queue\n"
    "#SBATCH --account=EU-26-1\n"
    "#SBATCH --partition=qgpu\n"
    "#SBATCH\t--ntasks-per-node=8\t\t# a GPU each\n"
    "##SBATCH --cpus-per-task=16\n"
    "#SBATCH --gpus-per-node=8\t\t# all of a node\n"
    "#SBATCH --exclusive\n"
    "\n"
    "export APPTAINER_BINDPATH=$SINGULARITY_BINDPATH\n"
    "\n"
    "srun bash -c \"{{ streamflow_command }}\" 2>&1\n";

TEST(BatchTemplateTest, OneWithTabsAndCommentsBehindItsOptionsIsReadAsSbatchReadsIt) {
    ASSERT_TRUE(check_template(kKarolina, "").ok()) << check_template(kKarolina, "").error().message;
    EXPECT_EQ(fill_template(kKarolina, kValues),
              "#!/bin/bash\n"
              "\n"
              "# replaced: #SBATCH --job-name=federation\n"
              "# replaced: #SBATCH --output=federation.out\n"
              "# replaced: #SBATCH --error=federation.err\n"
              "# replaced: #SBATCH --nodes=1\n"
              "# replaced: #SBATCH --time=00:20:00\t\t# of the express queue\n"
              "#SBATCH --account=EU-26-1\n"
              "#SBATCH --partition=qgpu\n"
              "# replaced: #SBATCH\t--ntasks-per-node=8\t\t# a GPU each\n"
              "##SBATCH --cpus-per-task=16\n"
              "#SBATCH --gpus-per-node=8\t\t# all of a node\n"
              "#SBATCH --exclusive\n"
              "\n" +
                  kValues.header +
                  "export APPTAINER_BINDPATH=$SINGULARITY_BINDPATH\n"
                  "\n"
                  "# replaced: srun bash -c \"{{ streamflow_command }}\" 2>&1\n"
                  "set +eu\n"
                  "exit 0\n");
    EXPECT_EQ(replaced_lines(kKarolina),
              (std::vector<std::string>{
                  "#SBATCH --job-name=federation", "#SBATCH --output=federation.out", "#SBATCH --error=federation.err",
                  "#SBATCH --nodes=1", "#SBATCH --time=00:20:00\t\t# of the express queue",
                  "#SBATCH\t--ntasks-per-node=8\t\t# a GPU each", "srun bash -c \"{{ streamflow_command }}\" 2>&1"}));
    EXPECT_EQ(template_time_s(kKarolina), 20 * 60);
}

// Tasks said three times, modules, a cache for MIOpen, RCCL's interfaces; what looks like an option behind the first
// command is none.
constexpr const char* kLumi = R"(#!/bin/bash
#SBATCH --job-name=federation
#SBATCH --output=federation
#SBATCH --error=federation
#SBATCH --time=02:00:00
#SBATCH --nodes=4
#SBATCH --ntasks=32
#SBATCH --tasks-per-node=8
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
#SBATCH --exclusive

module load LUMI/24.03 partition/G
{{ streamflow_environment }}
cd "{{ streamflow_workdir }}"

export MIOPEN_USER_DB_PATH="/tmp/$(whoami)-miopen-$SLURM_NODEID"
if [ "$SLURM_LOCALID" -eq 0 ]; then
    rm -rf "$MIOPEN_USER_DB_PATH"
fi
#SBATCH --time=00:01:00 --nodes=1
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
srun bash -c "{{ streamflow_command }}" 2>&1
)";

TEST(BatchTemplateTest, OneWithCommandsAroundTheLaunchKeepsThem) {
    ASSERT_TRUE(check_template(kLumi, "").ok()) << check_template(kLumi, "").error().message;
    EXPECT_EQ(fill_template(kLumi, kValues), R"(#!/bin/bash
# replaced: #SBATCH --job-name=federation
# replaced: #SBATCH --output=federation
# replaced: #SBATCH --error=federation
# replaced: #SBATCH --time=02:00:00
# replaced: #SBATCH --nodes=4
# replaced: #SBATCH --ntasks=32
# replaced: #SBATCH --tasks-per-node=8
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
#SBATCH --exclusive

#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --time=2:00:00
module load LUMI/24.03 partition/G
export A='1'
export B='2'
cd "/scratch/me/tasks/t/1"

export MIOPEN_USER_DB_PATH="/tmp/$(whoami)-miopen-$SLURM_NODEID"
if [ "$SLURM_LOCALID" -eq 0 ]; then
    rm -rf "$MIOPEN_USER_DB_PATH"
fi
#SBATCH --time=00:01:00 --nodes=1
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
# replaced: srun bash -c "{{ streamflow_command }}" 2>&1
set +eu
exit 0
)");
    EXPECT_EQ(replaced_lines(kLumi),
              (std::vector<std::string>{"#SBATCH --job-name=federation", "#SBATCH --output=federation",
                                        "#SBATCH --error=federation", "#SBATCH --time=02:00:00", "#SBATCH --nodes=4",
                                        "#SBATCH --ntasks=32", "#SBATCH --tasks-per-node=8",
                                        "srun bash -c \"{{ streamflow_command }}\" 2>&1"}));
    EXPECT_EQ(template_time_s(kLumi), 2 * 3600);
}

TEST(BatchTemplateTest, ItsTimeCountsWhereAJobSaysNone) {
    EXPECT_EQ(template_time_s(kLeonardo), 4 * 3600);
    EXPECT_EQ(template_time_s("#!/bin/sh\n#SBATCH -t 30\n{{ command }}\n"), 1800);
    EXPECT_EQ(template_time_s("#!/bin/sh\n{{ command }}\n"), 0);
    TemplateValues values = kValues;
    values.header = "#SBATCH --nodes=2\n";
    EXPECT_NE(fill_template(kLeonardo, values).find("\n#SBATCH --time=04:00:00\n"), std::string::npos);
}

TEST(BatchTemplateTest, WhatStartsTheCommandOverSeveralLinesGoesWithIt) {
    const std::string text =
        "#!/bin/sh\nsrun --mpi=pmix \\\n  --cpu-bind=none \\\n  bash -c '{{streamflow_command}}'\n";
    ASSERT_TRUE(check_template(text, "").ok()) << check_template(text, "").error().message;
    EXPECT_EQ(fill_template(text, kValues), "#!/bin/sh\n" + kValues.header +
                                                "# replaced: srun --mpi=pmix \\\n# replaced:   --cpu-bind=none \\\n"
                                                "# replaced:   bash -c '{{streamflow_command}}'\nset +eu\nexit 0\n");
}

TEST(BatchTemplateTest, AnEmptyEnvironmentIsFilledToo) {
    TemplateValues values = kValues;
    values.exports.clear();
    EXPECT_NE(fill_template(kLeonardo, values).find("\n:\ncd "), std::string::npos);
}

}  // namespace
}  // namespace atl::dispatch
