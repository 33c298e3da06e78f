#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/sites/batch/batch_system.h"
#include "shared/json/json.h"

namespace atl::dispatch {

// What one batch job runs: commands in the attempt's directory, one after another, until one fails. The exit status of
// the last one that ran is the job's.
struct BatchJob {
    BatchJobRef ref;
    std::map<std::string, std::string> environment = {};  // exported before anything runs
    std::vector<std::vector<std::string>> commands = {};
    std::int64_t ranks = 1;         // of each command
    std::string launcher = {};      // shell text before a command of several ranks, "{ranks}" replaced; empty: mpirun
    json::Json run_json = nullptr;  // becomes run.json; null: none
    std::string resumed_attempt = {};  // directory of the attempt whose out.state, if any, this one takes over
};

// The script for any batch system: it marks `started`, runs the commands with stdout.jsonl and stderr.log, and writes
// exit.json atomically at the end, whatever happens to them.
std::string render_job_script(const BatchJob& job);

// Shell lines that export a facility's environment.
std::string render_exports(const std::map<std::string, std::string>& environment);

}  // namespace atl::dispatch
