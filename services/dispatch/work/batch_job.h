#pragma once

#include "services/dispatch/domain/task.h"
#include "services/dispatch/sites/site.h"

namespace atl::dispatch {

BatchJobRef batch_job_ref(const Task& task, const Site& site);
// What the batch job of the task's attempt runs. kInvalidArgument: the facility cannot give what it asks for, since its
// record has changed.
Result<BatchJob> describe_batch_job(const Task& task, const Site& site);

// The batch script of the task's attempt; nothing is asked of the site.
Result<std::string> render_batch_script(const Task& task, const Site& site);

// The trainer's command that sees what the input of a preparation is.
std::vector<std::string> check_input_command(const PrepareParams& prepare, const Site& site);

}  // namespace atl::dispatch
