#include "services/dispatch/sites/job_script.h"

#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/text.h"
#include "shared/json/json.h"

namespace atl::dispatch {
namespace {

// MPI ranks on one machine: also as root, in containers, with fewer cores than ranks, and without a network. How ranks
// are started and placed is said to Open MPI 4 and, in variables of its launcher PRRTE, to Open MPI 5. What the
// facility's environment says counts.
constexpr const char* kMpirunEnvironment =
    R"sh(for setting in OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,vader \
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_hwloc_base_binding_policy=none \
    PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false PRTE_MCA_plm_ssh_agent=/bin/false; do
    eval "[ -n \"\${${setting%%=*}+set}\" ]" || export "$setting"
done
)sh";

// The coordinator may not know the machine.
std::string check_ranks(std::int64_t ranks) {
    const std::string count = std::to_string(ranks);
    return "most=$((" + std::to_string(kRanksPerCoreMax) + " * $(nproc)))\n[ " + count +
           " -le \"$most\" ] || {\n    echo \"atoll-trainer train: ranks: " + count +
           " are too many for this machine; of $(nproc) cores: at most $most\" >&2\n    return 2\n}\n";
}

// srun of Slurm 22.05 and later does not take the cores of a rank from the job by itself.
constexpr const char* kSrunEnvironment =
    "[ -z \"${SLURM_CPUS_PER_TASK-}\" ] || export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n";

// What stands before a command of several ranks. A launcher is shell text of the facility's own choice.
std::string fill_launcher(std::string text, std::int64_t ranks) {
    if (text == "mpirun") text += " -n {ranks}";
    return replace_all(std::move(text), "{ranks}", std::to_string(ranks)) + " ";
}

// It would start its daemons by the batch system's programs, which are outside.
constexpr const char* kMpirunInImageEnvironment =
    "export OMPI_MCA_plm=isolated OMPI_MCA_ras=^slurm PRTE_MCA_plm=ssh PRTE_MCA_ras=^slurm\n";

std::string launcher_environment(const std::string& launcher, std::int64_t ranks) {
    if (launcher == kMpirunInImage) return check_ranks(ranks) + kMpirunEnvironment + kMpirunInImageEnvironment;
    if (launcher == "mpirun") return check_ranks(ranks) + kMpirunEnvironment;
    return launcher.starts_with("srun") ? kSrunEnvironment : "";
}

// What was put into the queue to go on with an earlier attempt is not needed where that came to its end: a state is
// kept only by one that did not.
constexpr const char* kUnlessWhole =
    R"sh([ -e "$earlier/out.state/state.safetensors" ] || ! grep -q '"exit_code":0,' "$earlier/end.json" 2>/dev/null || {
    date -u '+not needed at %Y-%m-%dT%H:%M:%SZ' >>again
    exit 0
}
)sh";

// A file system that takes nothing is no second start.
constexpr const char* kClaim = R"sh(mkdir claim 2>/dev/null || {
    [ -d claim ] || { echo "nothing can be made in $PWD" >&2; exit 75; }
    date -u '+started again at %Y-%m-%dT%H:%M:%SZ' >>again
    exit 0
}
)sh";

// One start counts: a batch system may start a job again, a submission may have come twice or only now. What earlier
// attempts of the task left in a queue starts nothing any more either, and their newest state is taken over; where
// there is none the trainer begins anew.
std::string render_claims(const BatchJob& job) {
    std::string script;
    if (!job.ref.after.empty()) script += "earlier=" + shell_quote(job.earlier_attempts.front()) + "\n" + kUnlessWhole;
    script += kClaim;
    if (job.earlier_attempts.empty()) return script;
    script += "for earlier in";
    for (const std::string& directory : job.earlier_attempts) script += " " + shell_quote(directory);
    return script +
           "; do\n"
           "    mkdir \"$earlier/claim\" 2>/dev/null\n"
           "    [ -d out.state ] || mv \"$earlier/out.state\" out.state 2>/dev/null\n"
           "done\n";
}

// A training that was stopped has none yet.
std::string render_keep(const KeptState& kept) {
    const auto state_of = [&](std::int64_t round) { return shell_quote(kept.place(round) + ".state"); };
    const std::string place = state_of(kept.round);
    std::string script =
        "if [ -e out.state/optimizer.safetensors ] || [ -e out.state/rounding_error.safetensors ] ||\n    [ -e "
        "out.state/control_variate.safetensors ]; then\n    rm -rf " +
        place + "\n    mkdir -p " + place + " || return 75\n" +
        "    for kept in out.state/optimizer* out.state/rounding_error* out.state/control_variate*; do\n        [ ! -e "
        "\"$kept\" ] || mv "
        "\"$kept\" " +
        place + " || return 75\n    done\n    for old in " + shell_quote(kept.directory) +
        "/*.state; do\n        case $old in\n            " + place;
    if (kept.from > 0) script += " | " + state_of(kept.from);
    return script + ") ;;\n            *) rm -rf \"$old\" ;;\n        esac\n    done\nfi\n";
}

// The record of the job's end has one writer, and its bytes are taken at the start, as a disk may be full at the end.
constexpr const char* kRecord =
    R"sh(printf '%-127s\n' '' | dd of=end.json bs=128 conv=fsync 2>/dev/null || {
    echo "end.json cannot be written in $PWD" >&2
    exit 75
}
record() {
    printf '%-127s\n' "{\"exit_code\":$1,\"finished_unix_s\":$(date +%s)}" |
        dd of=end.json bs=128 conv=notrunc,fsync 2>/dev/null
}
)sh";

// A polite signal becomes a file that makes the trainer save and end. It is handed on to nobody: srun and mpirun would
// give it to each process of theirs, and what serves an image's file system there (squashfuse, where Apptainer is not
// setuid) dies of it, and the trainer for want of its libraries. The shell that records how the job ended stays. A wait
// that a signal ends says nothing of the child: it is waited for again, and 127 is the answer where the wait before had
// its status.
constexpr const char* kAwait = R"sh(export ATOLL_STOP_FILE="$PWD/stop"
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

// What ended by a signal or for the site's sake ends the job, as it may be ending anyway.
constexpr const char* kPassOver = R"sh(failed=0
pass_over() {
    case $1 in 1 | 2 | 3 | 4) ;; *) return "$1" ;; esac
    tail -c "+$(($3 + 1))" stderr.log | tail -c 16384 >"failed.$2"
    echo "{\"failed_with\":$1,\"place\":$2}"
    [ "$failed" -eq 1 ] || failed=$1
}
)sh";

// An image has an mpirun of its own, which needs none of the machine.
std::string launcher_of(const BatchJob& job, const BatchSystem& batch) {
    if (!job.launcher.empty()) return job.launcher;
    const std::string launcher = batch.launcher();
    return launcher == "mpirun" && !job.image_runner.empty() ? kMpirunInImage : launcher;
}

std::string image_start(const BatchJob& job) {
    return job.image_runner.empty() ? "" : "sh image.sh ";
}

// What stands before a command: the launcher starts ranks that each become a container, unless it is inside one.
std::string render_start(const BatchJob& job, const std::string& launcher) {
    const std::int64_t ranks = job.resources.ranks();
    const std::string runner = image_start(job);
    if (ranks == 1) return runner;
    return launcher == kMpirunInImage ? runner + fill_launcher("mpirun", ranks)
                                      : fill_launcher(launcher, ranks) + runner;
}

std::string render_commands(const BatchJob& job, const std::string& launcher) {
    std::string script = job.independent ? kPassOver : "";
    std::size_t place = 0;
    for (const auto& command : job.commands) {
        if (job.independent) script += "said=$(wc -c <stderr.log)\n";
        script += render_start(job, launcher);
        for (const auto& word : command) script += shell_quote(word) + " ";
        script += "&\nawait || ";
        if (job.independent) script += "pass_over \"$?\" " + std::to_string(place++) + " \"$said\" || ";
        script += "return\n";
    }
    return job.independent ? script + "return \"$failed\"\n" : script;
}

}  // namespace

std::string render_exports(const std::map<std::string, std::string>& environment) {
    std::string text;
    for (const auto& [name, value] : environment) text += "export " + name + "=" + shell_quote(value) + "\n";
    return text;
}

std::string render_job_script(const BatchJob& job, const BatchSystem& batch) {
    const std::int64_t ranks = job.resources.ranks();
    const std::string launcher = launcher_of(job, batch);
    // Where a node lacks the work directory Slurm 24.11 makes it for the log, with nothing in it.
    std::string script = "# Attempt " + job.ref.name + "\numask 077\ncd " + shell_quote(job.ref.directory) +
                         " && [ -e job.sh ] || exit 75\n" + render_claims(job) + kRecord + kAwait +
                         "export ATOLL_BATCH_JOB=" + shell_quote(job.ref.name) + "\n" +
                         render_exports(job.environment) + "job() {\n";
    if (!job.run_json.is_null())
        script += "cat >run.json <<'ATOLL_RUN_JSON' || return 75\n" + job.run_json.dump(2) + "\nATOLL_RUN_JSON\n";
    if (!job.image_check.empty()) script += job.image_check + "verify_image || return\n";
    if (!job.image_runner.empty())
        script += "cat >image.sh <<'ATOLL_IMAGE' || return 75\n" + job.image_runner + "ATOLL_IMAGE\n";
    if (ranks > 1) script += launcher_environment(launcher, ranks);
    if (job.is_check) script += "echo '{\"asked_ranks\":" + std::to_string(ranks) + "}'\n";
    script += render_commands(job, launcher);
    if (job.kept_state) script += render_keep(*job.kept_state);
    if (!job.seal.empty()) {  // which no notice ends: without it the login node would read the whole update
        script += "if [ -d out ]; then\n    trap '' USR1 TERM INT\n    " + image_start(job);
        for (const auto& word : job.seal) script += shell_quote(word) + " ";
        script += ">/dev/null || :\nfi\n";
    }
    script +=
        "}\n"
        "echo \"${SLURM_JOB_ID:-unknown}\" >started\n"
        "exec >stdout.jsonl 2>stderr.log </dev/null\n"
        "job\n"
        "code=$?\n"
        "record \"$code\"\n"
        "exit \"$code\"\n";
    BatchJobRef ref = job.ref;
    ref.exports = render_exports(job.environment);
    return batch.script(ref, job.resources, script);
}

}  // namespace atl::dispatch
