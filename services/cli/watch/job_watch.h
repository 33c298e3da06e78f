#pragma once

#include <string>

#include "services/cli/context.h"

namespace atl::cli {

// Follows a job to its end: a picture that changes on a terminal, lines elsewhere, the events themselves with --json.
// A coordinator that is away for a while (a restart, a lost connection) is waited for. An error when the job failed or
// was cancelled.
Status watch_job(const Context& context, const std::string& id);

}  // namespace atl::cli
