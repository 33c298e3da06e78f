#include "services/dispatch/sites/job_script.h"

#include "services/dispatch/sites/transport/frame.h"
#include "shared/json/json.h"

namespace atl::dispatch {
namespace {

constexpr int kRanksPerCoreMax = 16;

// MPI ranks on one machine: also as root, in containers, with fewer cores than ranks, and without a network. How ranks
// are started and placed is said to Open MPI 4 and, in variables of its launcher PRRTE, to Open MPI 5.
constexpr const char* kMpirunEnvironment =
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    "export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1\n"
    "export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe\n"
    "export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none\n"
    "export OMPI_MCA_plm_rsh_agent=/bin/false PRTE_MCA_plm_ssh_agent=/bin/false\n";

// What mpirun starts is on one machine: thousands of ranks there would take it down.
std::string check_ranks(std::int64_t ranks) {
    const std::string count = std::to_string(ranks);
    return "most=$((" + std::to_string(kRanksPerCoreMax) + " * $(nproc)))\n[ " + count +
           " -le \"$most\" ] || {\n    echo \"atoll-trainer train: ranks: " + count +
           " are too many for this machine; of $(nproc) cores: at most $most\" >&2\n    return 2\n}\n";
}

// What stands before a command: nothing for one rank. A launcher is shell text of the facility's own choice.
std::string render_launcher(const BatchJob& job) {
    const std::string ranks = std::to_string(job.ranks);
    if (job.ranks == 1) return "";
    if (job.launcher.empty()) return "mpirun -n " + ranks + " ";
    const std::string placeholder = "{ranks}";
    std::string text = job.launcher;
    for (std::size_t at = text.find(placeholder); at != std::string::npos; at = text.find(placeholder, at + 1))
        text.replace(at, placeholder.size(), ranks);
    return text + " ";
}

}  // namespace

std::string render_exports(const std::map<std::string, std::string>& environment) {
    std::string text;
    for (const auto& [name, value] : environment) text += "export " + name + "=" + shell_quote(value) + "\n";
    return text;
}

std::string render_job_script(const BatchJob& job) {
    std::string script = "#!/bin/sh\n# Attempt " + job.ref.name + "\numask 077\ncd " + shell_quote(job.ref.directory) +
                         " || exit 1\nexport ATOLL_BATCH_JOB=" + shell_quote(job.ref.name) + "\n" +
                         render_exports(job.environment) + "job() {\n";
    if (!job.run_json.is_null())
        script += "cat >run.json <<'ATOLL_RUN_JSON'\n" + job.run_json.dump(2) + "\nATOLL_RUN_JSON\n";
    if (job.ranks > 1 && job.launcher.empty()) script += check_ranks(job.ranks) + kMpirunEnvironment;
    if (!job.resumed_attempt.empty())
        script += "mv " + shell_quote(job.resumed_attempt) + "/out.state out.state 2>/dev/null\n";  // none: a run anew
    for (const auto& command : job.commands) {
        script += render_launcher(job);
        for (const auto& word : command) script += shell_quote(word) + " ";
        script += "|| return\n";
    }
    return script +
           "}\n"
           "record() {\n"
           "    printf '{\"exit_code\":%d,\"finished_unix_s\":%d}\\n' \"$1\" \"$(date +%s)\" >exit.json.tmp\n"
           "    sync exit.json.tmp\n"
           "    mv exit.json.tmp exit.json\n"
           "}\n"
           // A polite signal ends the trainer, not the script that records how it ended.
           "trap : TERM INT\n"
           ": >started\n"
           "( job ) >stdout.jsonl 2>stderr.log </dev/null\n"
           "record \"$?\"\n";
}

}  // namespace atl::dispatch
