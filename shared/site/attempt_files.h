#pragma once

namespace atl::site {

// The files of an attempt's directory that what runs at the site writes and the coordinator reads. Shell text writes
// their names: SiteScriptsTest holds it to this list.
constexpr const char* kStandardOutput = "stdout.jsonl";  // of its commands: a JSON document a line
constexpr const char* kStandardError = "stderr.log";
constexpr const char* kBatchLog = "batch.log";        // what the batch system and the site's template say; local: none
constexpr const char* kEnd = "end.json";              // {"exit_code": …}; blanks: it has not ended
constexpr const char* kSeal = "seal.json";            // what is sent with the update, as `atoll seal` leaves it
constexpr const char* kStateDirectory = "out.state";  // what a training goes on from
constexpr const char* kAttemptFiles[] = {kStandardOutput, kStandardError, kBatchLog, kEnd, kSeal, kStateDirectory};
// As people read them.
constexpr const char* kLogFiles[] = {kStandardOutput, kStandardError, kBatchLog};

}  // namespace atl::site
