#pragma once

#include <string>

#include "services/stack/stack_user.h"

namespace atl::stack {

// Prepares the state directory for a stack that root starts, and returns the user that will run it. The user gets the
// directory. Files that the user cannot read in their place are copied into it, and the options then name the copies:
// the programs (bin/), Kafka's jars (lib/atoll/kafka/), and the certificate with its key (tls/). A copy that is up to
// date is kept.
Result<StackUser> prepare_user(UpOptions& options, const std::string& asked, const Report& report);

}  // namespace atl::stack
