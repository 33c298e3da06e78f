#include "services/dispatch/sites/job_script.h"

#include "services/dispatch/sites/transport/frame.h"
#include "shared/json/json.h"

namespace atl::dispatch {
namespace {

std::string words(const std::vector<std::string>& argv) {
    std::string line;
    for (const auto& word : argv) line += (line.empty() ? "" : " ") + shell_quote(word);
    return line;
}

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

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}

// What stands before the trainer's command: nothing for one rank. A launcher is shell text of the site's own choice.
std::string launcher(const Facility& facility, std::int64_t ranks) {
    if (ranks == 1) return "";
    const std::string count = std::to_string(ranks);
    if (facility.launcher.empty()) return "mpirun -n " + count + " ";
    return replaced(facility.launcher, "{ranks}", count) + " ";
}

std::string exports(const JobPlace& place) {
    return "export ATOLL_OPERATION=" + shell_quote(place.operation) + "\n" + export_environment(*place.facility);
}

// `body` is the text of a function whose exit status is the job's.
std::string job_script(const JobPlace& place, const std::string& body) {
    return "#!/bin/sh\n# Attempt " + place.operation +
           "\n"
           "umask 077\n"
           "cd " +
           shell_quote(place.directory) + " || exit 1\n" + exports(place) + "job() {\n" + body +
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

std::string tokenize_command(const JobPlace& place, const TokenizeJob& job, const std::string& split) {
    return words({place.trainer, "tokenize", "--tokenizer", job.tokenizer, "--input", job.input, "--template",
                  job.prompt_template, "--out", "out/" + split, "--seq-len", std::to_string(job.seq_len), "--batching",
                  job.batching, "--split", split, "--validation-percent", std::to_string(job.validation_percent)});
}

}  // namespace

std::string export_environment(const Facility& facility) {
    std::string text;
    for (const auto& [name, value] : facility.environment) text += "export " + name + "=" + shell_quote(value) + "\n";
    return text;
}

std::string train_script(const JobPlace& place, const TrainJob& job) {
    std::string body = "cat >run.json <<'ATOLL_RUN_JSON'\n" + job.settings.dump(2) + "\nATOLL_RUN_JSON\n";
    if (job.ranks > 1 && place.facility->launcher.empty()) body += check_ranks(job.ranks) + kMpirunEnvironment;
    std::vector<std::string> command = {place.trainer, "train", "--model", job.model,  "--data",
                                        job.data,      "--out", "out",     "--config", "run.json"};
    if (!job.continued.empty()) {
        body += "mv " + shell_quote(job.continued) + "/out.state out.state 2>/dev/null\n";  // none: a run anew
        command.emplace_back("--resume");
    }
    body += launcher(*place.facility, job.ranks) + words(command) + "\n";
    return job_script(place, body);
}

std::string evaluate_script(const JobPlace& place, const EvaluateJob& job) {
    std::string body;
    for (const auto& model : job.models)
        body += words({place.trainer, "eval", "--model", model, "--data", job.data}) + " || return\n";
    return job_script(place, body);
}

std::string tokenize_script(const JobPlace& place, const TokenizeJob& job) {
    return job_script(place, "mkdir -p out\n" + tokenize_command(place, job, "train") + " || return\n" +
                                 tokenize_command(place, job, "validation") +
                                 " || return\n"
                                 // Kept here, as out/ moves to its final place.
                                 "cp out/train/data.json train.data.json && "
                                 "cp out/validation/data.json validation.data.json\n");
}

}  // namespace atl::dispatch
