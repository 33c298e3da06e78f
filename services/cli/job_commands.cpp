#include "services/cli/commands.h"

namespace atl::cli {

void add_job_commands(CLI::App&, Context&) {}

}  // namespace atl::cli
