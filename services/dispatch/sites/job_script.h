#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/sites/batch/batch_system.h"
#include "shared/json/json.h"

namespace atl::dispatch {

// What a site keeps from round to round of a job: the optimizer's moments, and what rounding its update lost.
struct KeptState {
    std::string directory;   // of the job's
    std::int64_t round = 0;  // whose is kept if the job's commands succeed; those of other rounds go, but for `from`'s
    std::int64_t from = 0;   // the round whose it begins with; 0: none

    // The --out whose state a round's is there.
    std::string place(std::int64_t of_round) const { return directory + "/round" + std::to_string(of_round); }
};

// What one batch job runs: commands in the attempt's directory, one after another, until one fails. The exit status of
// the last one that ran is the job's. Where the commands are `independent` one that atoll-trainer itself ends with an
// error is passed over: a line {"failed_with": STATUS, "place": PLACE} follows what it printed in stdout.jsonl, what it
// said stands in the file failed.PLACE, and the job's status is that of one that failed, 1 before others.
struct BatchJob {
    BatchJobRef ref;
    std::map<std::string, std::string> environment = {};  // exported before anything runs
    std::vector<std::vector<std::string>> commands = {};
    bool independent = false;
    // One process after them, which looks through what they left in out/. Whether it can says nothing of the job.
    std::vector<std::string> seal = {};
    Resources resources = {};  // of the job; each command is started as resources.ranks() ranks
    // Shell text before a command of several ranks, "{ranks}" replaced; "mpirun": of one machine; empty: the batch
    // system's own.
    std::string launcher = {};
    std::string image_runner = {};  // shell text that becomes a command in the image; empty: commands are the site's
    std::string image_check = {};  // shell text that defines verify_image, which looks at the image before; empty: none
    bool is_check = false;         // of a facility, which says itself what its image is
    json::Json run_json = nullptr;  // becomes run.json; null: none
    // Of the first command, which must be a training; none: nothing is kept.
    std::optional<KeptState> kept_state = {};
    // Directories of the task's earlier attempts, the newest first: the newest state there, when the job starts, is
    // taken over. Of a job with `ref.after` the first is the one that it goes on with.
    std::vector<std::string> earlier_attempts = {};
};

// The script for a batch system: it claims the attempt, so that whatever else starts under its name ends at once,
// marks `started`, runs the commands with stdout.jsonl and stderr.log, tells them of a signal by ATOLL_STOP_FILE, and
// writes end.json, which it alone writes, at the end, whatever happens to them. Blanks in it: the job has not ended.
std::string render_job_script(const BatchJob& job, const BatchSystem& batch);

// Shell lines that export a facility's environment.
std::string render_exports(const std::map<std::string, std::string>& environment);

}  // namespace atl::dispatch
