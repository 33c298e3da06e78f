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
