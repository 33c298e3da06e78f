#pragma once

#include <string>

#include "trainer/train/job.h"

namespace atl::train {

// What data.json says of the rows; of a bare .safetensors file its sha256, for which rank 0 reads it. Every rank takes
// part and gets the same outcome.
Result<std::string> data_fingerprint(const data::Dataset& dataset, comm::Comm& comm);

// All that must be the same in a run that goes on from another's state, as a JSON object: settings, the model's
// mathematics, the data, and of a frozen model under adapters its digest.
std::string identity_of(const TrainJob& job, const std::string& data_fingerprint, const std::string& base_digest);

}  // namespace atl::train
