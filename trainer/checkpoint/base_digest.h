#pragma once

#include <string>

#include "trainer/checkpoint/weights_io.h"
#include "trainer/comm/comm.h"

namespace atl::checkpoint {

// The sha256 of a model directory's own tensors, by name: their formats, shapes and bytes, however they are spread over
// files. So a training knows again what it began with. The ranks hash a part of the tensors each, with
// `from_rank0` (--broadcast-from-rank0) rank 0 all of them; all get the same outcome.
Result<std::string> base_digest(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0);
// The same of the tensors of the adapter that the run begins with.
Result<std::string> adapter_digest(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0);

// Rank 0 says so on standard error when an adapter was trained on other weights than the model's, whose base_digest()
// is `sha256`.
void warn_of_other_weights(const ModelDirectory& directory, const weights::AdapterBase& trained_on,
                           const std::string& sha256, const comm::Comm& comm);
// The same where the weights are still to be read, which they are only if the adapter tells. Every rank takes part and
// gets the same outcome.
Status warn_of_other_weights(const ModelDirectory& directory, const weights::AdapterBase& trained_on, comm::Comm& comm,
                             bool from_rank0);

}  // namespace atl::checkpoint
