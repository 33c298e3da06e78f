#include "services/dispatch/sites/job_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {
namespace {

std::string render_locally(const BatchJob& job) {
    return render_job_script(job, *make_local_batch(1, "/work"));
}

constexpr const char* kBegin = R"sh(printf '%-127s\n' '' | dd of=end.json bs=128 conv=fsync 2>/dev/null || {
    echo "end.json cannot be written in $PWD" >&2
    exit 75
}
record() {
    printf '%-127s\n' "{\"exit_code\":$1,\"finished_unix_s\":$(date +%s)}" |
        dd of=end.json bs=128 conv=notrunc,fsync 2>/dev/null
}
export ATOLL_STOP_FILE="$PWD/stop"
trap 'woken=1; touch stop' USR1 TERM INT
await() {
    child=$!
    status=127
    while :; do
        woken=
        wait "$child"
        answer=$?
        [ "$answer" -eq 127 ] || status=$answer
        [ -n "$woken" ] || kill -0 "$child" 2>/dev/null || break
    done
    return "$status"
}
)sh";
constexpr const char* kEnd = R"sh(}
echo "${SLURM_JOB_ID:-unknown}" >started
exec >stdout.jsonl 2>stderr.log </dev/null
job
code=$?
record "$code"
exit "$code"
)sh";

TEST(JobScriptTest, WhatSealsIsOneProcessAfterTheOthersAndItsFailureIsNoneOfTheJob) {
    BatchJob job{.ref = {"atoll-t-1", "/work"}, .commands = {{"trainer"}}, .seal = {"atoll", "seal"}};
    job.resources.nodes = 2;
    const std::string script = render_locally(job);
    EXPECT_NE(
        script.find("'trainer' &\nawait || return\n"
                    "if [ -d out ]; then\n    trap '' USR1 TERM INT\n    'atoll' 'seal' >/dev/null || :\nfi\n}\n"),
        std::string::npos)
        << script;
}

TEST(JobScriptTest, CommandsRunInTheAttemptsDirectoryUntilOneFails) {
    const BatchJob job{.ref = {"atoll-t-1", "/work/it's"},
                       .environment = {{"CA", "/etc/$ca.pem"}, {"KEY", "it's"}},
                       .commands = {{"mkdir", "-p", "out"}, {"/bin/atoll-trainer", "eval", "--data", "a b"}}};
    EXPECT_EQ(render_locally(job), std::string(R"sh(#!/bin/sh
# Attempt atoll-t-1
umask 077
cd '/work/it'\''s' && [ -e job.sh ] || exit 75
mkdir claim 2>/dev/null || {
    [ -d claim ] || { echo "nothing can be made in $PWD" >&2; exit 75; }
    date -u '+started again at %Y-%m-%dT%H:%M:%SZ' >>again
    exit 0
}
)sh") + kBegin + R"sh(export ATOLL_BATCH_JOB='atoll-t-1'
export CA='/etc/$ca.pem'
export KEY='it'\''s'
job() {
'mkdir' '-p' 'out' &
await || return
'/bin/atoll-trainer' 'eval' '--data' 'a b' &
await || return
)sh" + kEnd);
}

TEST(JobScriptTest, ATrainingHasItsSettingsItsLauncherAndTheNewestState) {
    const BatchJob job{.ref = {"atoll-t-3", "/work/tasks/t/3"},
                       .commands = {{"atoll-trainer", "train", "--resume"}},
                       .resources = {.tasks_per_node = 4},
                       .launcher = "srun -n {ranks} --ntasks={ranks}",
                       .run_json = {{"lr", 0.5}},
                       .earlier_attempts = {"/work/tasks/t/2", "/work/tasks/t/1"}};
    EXPECT_EQ(render_locally(job), std::string(R"sh(#!/bin/sh
# Attempt atoll-t-3
umask 077
cd '/work/tasks/t/3' && [ -e job.sh ] || exit 75
mkdir claim 2>/dev/null || {
    [ -d claim ] || { echo "nothing can be made in $PWD" >&2; exit 75; }
    date -u '+started again at %Y-%m-%dT%H:%M:%SZ' >>again
    exit 0
}
for earlier in '/work/tasks/t/2' '/work/tasks/t/1'; do
    mkdir "$earlier/claim" 2>/dev/null
    [ -d out.state ] || mv "$earlier/out.state" out.state 2>/dev/null
done
)sh") + kBegin + R"sh(export ATOLL_BATCH_JOB='atoll-t-3'
job() {
cat >run.json <<'ATOLL_RUN_JSON' || return 75
{
  "lr": 0.5
}
ATOLL_RUN_JSON
[ -z "${SLURM_CPUS_PER_TASK-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
srun -n 4 --ntasks=4 'atoll-trainer' 'train' '--resume' &
await || return
)sh" + kEnd);
}

// A trainer that leaves an optimizer, or another end.
struct KeptStateRun {
    TemporaryDirectory work;
    std::string trainer = "mkdir out.state; echo mine >out.state/optimizer.safetensors";

    std::vector<std::string> run(std::int64_t round, std::int64_t from) {
        const auto directory = work.path() / ("task" + std::to_string(round));
        std::filesystem::remove_all(directory);
        std::filesystem::create_directory(directory);
        const BatchJob job{.ref = {"atoll-t-1", directory},
                           .commands = {{"sh", "-c", trainer, "train"}},
                           .kept_state = KeptState{work.path() / "kept/job", round, from}};
        EXPECT_TRUE(write_file_atomic(directory / "job.sh", render_locally(job)).ok());
        EXPECT_EQ(run_command({"sh", directory / "job.sh"})->exit_code, 0);
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(work.path() / "kept/job"))
            names.push_back(entry.path().filename());
        std::ranges::sort(names);
        return names;
    }
};

TEST(JobScriptTest, ATrainingsOptimizerIsKeptBesideThatWhichItBeganWith) {
    KeptStateRun site;
    using Names = std::vector<std::string>;
    EXPECT_EQ(site.run(1, 0), Names{"round1.state"});
    EXPECT_EQ(site.run(2, 1), (Names{"round1.state", "round2.state"}));
    EXPECT_EQ(site.run(3, 1), (Names{"round1.state", "round3.state"})) << "round 2 did not count";
    EXPECT_EQ(site.run(3, 1), (Names{"round1.state", "round3.state"})) << "once more";
    std::filesystem::remove_all(site.work.path() / "kept/job/round3.state");
    EXPECT_EQ(site.run(4, 3), Names{"round4.state"}) << "it was lost";
    site.trainer = "true";  // as one that was stopped
    EXPECT_EQ(site.run(5, 4), Names{"round4.state"});
}

TEST(JobScriptTest, WhatRoundingLostIsKeptAlsoWithoutAnOptimizer) {
    KeptStateRun site;
    site.trainer = "mkdir out.state; echo mine >out.state/rounding_error.safetensors";
    using Names = std::vector<std::string>;
    EXPECT_EQ(site.run(1, 0), Names{"round1.state"});
    EXPECT_EQ(site.run(2, 1), (Names{"round1.state", "round2.state"}));
    const auto kept = site.work.path() / "kept/job/round2.state";
    EXPECT_EQ(read_file(kept / "rounding_error.safetensors").value(), "mine\n");
    site.trainer += "; for part in optimizer optimizer-1; do echo x >out.state/$part.safetensors; done";
    site.run(2, 1);
    for (const char* file : {"rounding_error.safetensors", "optimizer.safetensors", "optimizer-1.safetensors"})
        EXPECT_TRUE(std::filesystem::exists(kept / file)) << file;
}

TEST(JobScriptTest, AControlVariateIsKeptAlsoAlone) {
    KeptStateRun site;
    site.trainer = "mkdir out.state; echo mine >out.state/control_variate.safetensors";
    using Names = std::vector<std::string>;
    EXPECT_EQ(site.run(1, 0), Names{"round1.state"});
    EXPECT_EQ(site.run(2, 1), (Names{"round1.state", "round2.state"}));
    EXPECT_EQ(read_file(site.work.path() / "kept/job/round2.state/control_variate.safetensors").value(), "mine\n");
}

TEST(JobScriptTest, AContinuationWaitsForTheAttemptBeforeItAndEndsAtOnceWhereThatIsWhole) {
    const BatchJob job{.ref = {"atoll-t-2", "/work/tasks/t/2", "4711"},
                       .commands = {{"atoll-trainer", "train", "--resume"}},
                       .earlier_attempts = {"/work/tasks/t/1"}};
    const std::string script = render_job_script(job, *make_slurm_batch());
    EXPECT_NE(script.find("\n#SBATCH --dependency=afterany:4711\n"), std::string::npos) << script;
    EXPECT_NE(script.find(R"sh( || exit 75
earlier='/work/tasks/t/1'
[ -e "$earlier/out.state/state.safetensors" ] || ! grep -q '"exit_code":0,' "$earlier/end.json" 2>/dev/null || {
    date -u '+not needed at %Y-%m-%dT%H:%M:%SZ' >>again
    exit 0
}
mkdir claim 2>/dev/null)sh"),
              std::string::npos)
        << script;
}

TEST(JobScriptTest, SlurmStartsTheRanksOfAllNodesWhereTheFacilityDoesNotSay) {
    const BatchJob job{.ref = {"atoll-t-1", "/work"},
                       .commands = {{"atoll-trainer", "train"}},
                       .resources = {.nodes = 2, .tasks_per_node = 2}};
    const std::string script = render_job_script(job, *make_slurm_batch());
    EXPECT_NE(
        script.find("\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --ntasks=4\n# Attempt atoll-t-1\n"),
        std::string::npos)
        << script;
    EXPECT_NE(script.find("\nsrun --mpi=pmix --kill-on-bad-exit=1 'atoll-trainer' 'train' &\n"), std::string::npos);
}

TEST(JobScriptTest, WithoutALauncherMpirunStartsAsManyRanksAsOneMachineBears) {
    const std::string script = render_locally(
        {.ref = {"atoll-t-1", "/work"}, .commands = {{"atoll-trainer", "train"}}, .resources = {.tasks_per_node = 2}});
    EXPECT_EQ(script, std::string(R"sh(#!/bin/sh
# Attempt atoll-t-1
umask 077
cd '/work' && [ -e job.sh ] || exit 75
mkdir claim 2>/dev/null || {
    [ -d claim ] || { echo "nothing can be made in $PWD" >&2; exit 75; }
    date -u '+started again at %Y-%m-%dT%H:%M:%SZ' >>again
    exit 0
}
)sh") + kBegin + R"sh(export ATOLL_BATCH_JOB='atoll-t-1'
job() {
most=$((16 * $(nproc)))
[ 2 -le "$most" ] || {
    echo "atoll-trainer train: ranks: 2 are too many for this machine; of $(nproc) cores: at most $most" >&2
    return 2
}
for setting in OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader \
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none \
    PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false PRTE_MCA_plm_ssh_agent=/bin/false; do
    eval "[ -n \"\${${setting%%=*}+set}\" ]" || export "$setting"
done
mpirun -n 2 'atoll-trainer' 'train' &
await || return
)sh" + kEnd);
}

// Runs them here, each as words for sh; the attempt's files stay in `directory`.
std::int64_t run_independent(const std::filesystem::path& directory, const std::vector<std::string>& commands) {
    BatchJob job{.ref = {"atoll-t-1", directory.string()}, .independent = true};
    for (const std::string& words : commands) job.commands.push_back({"sh", "-c", words});
    EXPECT_TRUE(write_file_atomic(directory / "job.sh", render_locally(job)).ok());
    return run_command({"sh", (directory / "job.sh").string()})->exit_code;
}

TEST(JobScriptTest, AnIndependentCommandThatFailsIsPassedOver) {
    const TemporaryDirectory directory;
    const auto file = [&](const char* name) { return read_file(directory.path() / name).value(); };
    const std::string result = R"({"perplexity":2})";
    EXPECT_EQ(run_independent(directory.path(), {"echo '" + result + "'; echo a note >&2",
                                                 "echo no weights >&2; exit 2", "echo '" + result + "'"}),
              2);
    EXPECT_EQ(file("stdout.jsonl"), result + "\n{\"failed_with\":2,\"place\":1}\n" + result + "\n");
    EXPECT_EQ(file("failed.1"), "no weights\n");
    EXPECT_EQ(file("stderr.log"), "a note\nno weights\n");
    EXPECT_NE(file("end.json").find("\"exit_code\":2,"), std::string::npos);
}

TEST(JobScriptTest, WhatMayGoBetterLaterIsTheStatusOfIndependentCommandsAndASignalEndsThem) {
    EXPECT_EQ(run_independent(TemporaryDirectory().path(), {"exit 1", "exit 2"}), 1);
    const TemporaryDirectory directory;
    EXPECT_EQ(run_independent(directory.path(), {"kill -9 $$", "echo not begun"}), 137);
    EXPECT_EQ(read_file(directory.path() / "stdout.jsonl").value(), "");
}

// From the job's function to what starts its command.
std::string start_in_image(const std::string& launcher, std::int64_t ranks, const BatchSystem& batch) {
    const BatchJob job{.ref = {"atoll-t-1", "/work"},
                       .commands = {{"atoll-trainer", "train"}},
                       .resources = {.tasks_per_node = ranks},
                       .launcher = launcher,
                       .image_runner = "exec apptainer exec /t.sif \"$@\"\n"};
    const std::string script = render_job_script(job, batch);
    const std::string begin =
        "\njob() {\ncat >image.sh <<'ATOLL_IMAGE' || return 75\nexec apptainer exec /t.sif \"$@\"\nATOLL_IMAGE\n";
    const std::size_t at = script.find(begin);
    EXPECT_NE(at, std::string::npos) << script;
    const std::string rest = script.substr(at + begin.size());
    const std::size_t end = rest.find(" &\nawait || return\n");
    const std::size_t line = rest.rfind('\n', end);
    return line == std::string::npos ? rest.substr(0, end) : rest.substr(line + 1, end - line - 1);
}

TEST(JobScriptTest, EachRankIsAContainerUnlessMpirunIsInsideOne) {
    const auto slurm = make_slurm_batch();
    const auto local = make_local_batch(1, "/work");
    EXPECT_EQ(start_in_image("", 1, *slurm), "sh image.sh 'atoll-trainer' 'train'");
    EXPECT_EQ(start_in_image("", 2, *slurm),
              "srun --mpi=pmix --kill-on-bad-exit=1 sh image.sh 'atoll-trainer' 'train'");
    EXPECT_EQ(start_in_image("mpirun", 2, *slurm), "mpirun -n 2 sh image.sh 'atoll-trainer' 'train'");
    EXPECT_EQ(start_in_image("mpirun-in-image", 2, *slurm), "sh image.sh mpirun -n 2 'atoll-trainer' 'train'");
    EXPECT_EQ(start_in_image("", 2, *local), "sh image.sh mpirun -n 2 'atoll-trainer' 'train'");
}

}  // namespace
}  // namespace atl::dispatch
