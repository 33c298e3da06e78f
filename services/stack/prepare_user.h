#pragma once

#include <string>

#include "services/stack/stack_user.h"

namespace atl::stack {

// What `atoll up` does first where it is root, for the user as whom the stack runs, and whom this returns. The state
// directory becomes the user's. What the user cannot reach where root has it is copied there, and named in the options
// instead: the programs (bin/), Kafka's jars (lib/atoll/kafka/) and the certificate with its key (tls/). A copy that is
// as new as what it was made of stays.
Result<StackUser> prepare_user(UpOptions& options, const std::string& asked, const Report& report);

}  // namespace atl::stack
