#pragma once

#include "shared/metrics/metrics.h"

namespace atl::metrics {

// Adds what is known of this process (process_*), looked at anew at each exposition. From /proc.
void add_process(Registry& registry);

}  // namespace atl::metrics
