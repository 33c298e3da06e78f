#pragma once

#include <string>

#include "shared/json/json.h"
#include "shared/run_settings/run_settings.h"

namespace atl::dispatch {

// An object of training settings, keys of the trainer's run.json less those that are not a job's to set. `path` is the
// object's own field name ("training"); the error names the first wrong key.
Result<run_settings::RunConfig> parse_training_settings(const json::Json& settings, const std::string& path);

// Whether each training of a round validates on the validation rows of its dataset: its merged settings have
// eval_every.
bool validates(const json::Json& settings);

// What one participant's own settings may not say. The error names the key.
Status check_own_settings(const json::Json& overrides, const std::string& path);

// Checks what several settings of one participant's training say together, as the trainer would before its first step:
// `settings` are the merged ones, `overrides` the participant's own (or null), `ranks` its processes. The error names
// the key where it was set: "training.epochs", or `path` + ".epochs" where the participant's own.
Status check_training_together(const json::Json& settings, const json::Json& overrides, std::int64_t ranks,
                               const std::string& path);

// The settings for a batch job that is ended after `time_s` (0: not known): the trainer stops by itself before the
// batch system says so, which leaves it what its last save took besides. A shorter `time_limit` stays.
json::Json limit_time(json::Json settings, std::int64_t time_s);

// A training that says nothing of states saves one every ten minutes, so that what is killed loses no more than that.
constexpr double kSaveInterval_s = 600;
json::Json save_by_time(json::Json settings);

// `base` with the members of `overrides` on top.
json::Json merge_training_settings(json::Json base, const json::Json& overrides);

// Whether a training with these settings hands in the change of its model alone: its update_format is int8 or int4.
bool writes_change(const json::Json& training);

}  // namespace atl::dispatch
