#pragma once

#include <string>

#include "trainer/train/prepare.h"

namespace atl::train {

// The sha256 of the file of rows, for which rank 0 reads it. kConflict: data.json says another one. Every rank takes
// part and gets the same outcome.
Result<std::string> data_fingerprint(const dataset::Dataset& dataset, comm::Comm& comm);

// All that must be the same in a run that goes on from another's state, as a JSON object of objects: "flags", the
// "model"'s mathematics and digest, that of the "adapter" it begins with, the "data". Reads the data and that adapter.
// Every rank takes part and gets the same outcome.
Result<std::string> run_fingerprint(const PreparedRun& prepared, comm::Comm& comm);

// What must be the same where a run begins with another's moments, in the same form.
std::string optimizer_fingerprint(const PreparedRun& prepared);

// run_fingerprint() of a run that is finished: what its result was saved in counts too. A state goes on to be saved in
// any.
std::string result_fingerprint(const std::string& fingerprint, const RunConfig& config);

}  // namespace atl::train
