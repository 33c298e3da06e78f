#pragma once

#include <string>

#include "trainer/train/job.h"

namespace atl::train {

// The sha256 of the file of rows, for which rank 0 reads it. kConflict: data.json says another one. Every rank takes
// part and gets the same outcome.
Result<std::string> data_fingerprint(const data::Dataset& dataset, comm::Comm& comm);

// All that must be the same in a run that goes on from another's state, as a JSON object of objects: "flags", the
// "model"'s mathematics (of a frozen one under adapters also its digest), the "data". Reads the data. Every rank takes
// part and gets the same outcome.
Result<std::string> identity_of(const TrainJob& job, comm::Comm& comm);

}  // namespace atl::train
