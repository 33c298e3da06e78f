#pragma once

#include <functional>
#include <string>

#include "services/cli/context.h"

namespace atl::cli {

using JobBody = std::function<Status(http::Client& dispatch, const std::string& job)>;

// A command of `group` whose first argument is a job: "newest" stands for the one that was submitted last, a name for
// the only one that has it.
CLI::App* add_job_verb(CLI::App& group, Context& context, const char* verb, const char* about, JobBody body);

void add_job_metrics(CLI::App& group, Context& context);  // job metrics

}  // namespace atl::cli
