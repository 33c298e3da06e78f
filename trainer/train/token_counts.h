#pragma once

#include <string>

#include "trainer/train/prepare.h"

namespace atl::train {

// The token_counts.safetensors of a run that is done: how often each token stood in the rows that it saw, each as often
// as it was seen, up to a row's last target (so without padding). The rows are read again, by each rank its share; so
// what was stopped in between changes nothing. Every rank takes part and gets the same outcome.
Result<std::string> make_token_counts(const PreparedRun& prepared, comm::Comm& comm);

}  // namespace atl::train
