#pragma once

#include <string>
#include <vector>

#include "services/dispatch/domain/task.h"
#include "shared/base/result.h"

// What an attempt's program has printed. Pure.
namespace atl::dispatch {

// Reads the lines that the attempt's program printed, and stops at one that none of our programs can have written; the
// error names it. What a site's program says is kept only as far as it is numbers. (Of what a failed one wrote to
// standard error the reason is kept too, failure_text(): no program of ours writes text of a dataset there.) A step
// that the training does not have is passed over: it would stand as the newest one and hide those that are made.
// kInternal. `steps`: those of the training, in their order; what else was read goes to the attempt.
Status read_lines(Task& task, const std::vector<std::string>& lines, std::vector<StepLine>& steps);

}  // namespace atl::dispatch
