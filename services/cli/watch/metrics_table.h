#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "services/cli/output.h"

namespace atl::cli {

// Loss and tokens/s of a training as `job watch` and `round show` tell them: `last` of the newest step, while it runs
// and afterwards; `mean` of the whole training, known when it is done. `validates`: also the newest loss on validation
// rows, where any training tells one.
std::vector<Column> training_header(bool validates);

// The cells under that header. `progress`: the newest step (an event's data, or a task's "progress"); `metrics`: those
// of the update. Null: not yet known.
std::vector<std::string> training_cells(const nlohmann::json& progress, const nlohmann::json& metrics, bool validates);

// Whether the newest step, or one before it, was followed by a validation.
bool has_validation(const nlohmann::json& progress);

// Where a training's attempt after the first began, whose attempts before it had come to step `reached`; empty: nothing
// is known, or nothing was lost.
std::string resumption_text(std::int64_t first_step, std::int64_t reached);

// That a site's update has pointed away from the others' for rounds, and what can be done; empty: it has not.
// `contribution`: what its update is in a round's model, as the events and the rounds of a job have it.
std::string opposition_text(const nlohmann::json& contribution);

}  // namespace atl::cli
