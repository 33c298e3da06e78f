#pragma once

#include "services/store/blobs/blob_store.h"
#include "shared/base/result.h"
#include "shared/store_client/manifest.h"

namespace atl::store {

// What a facility hands in is a model of its base's shape, and not larger than one can be:
//   - Its tensors are the base's by name and shape, each once, as F32, F16, BF16 or what the base has.
//   - Its *.safetensors files have the base's names, or they are model.safetensors alone, or the shards of its own
//     model.safetensors.index.json, which then says where each tensor is and names no other. A model.safetensors
//     beside an index holds all tensors, because it is read alone.
//   - Their heads together have at most 72 KiB, 8 KiB for each file of the base, and for each tensor its name and 200
//     bytes (or twice what the base's have); each at most 64 KiB of __metadata__. The index has at most as much.
//   - Instead of weights it may have delta.safetensors, the change of each tensor of the base (shared/delta), which
//   names
//     the base by its digest.
//   - token_counts.safetensors may be beside them: one F32 for each row of the base's embedding, no other tensor, and
//     a head of at most 8 KiB.
//   - control_variate.safetensors may be beside them: an int8 change of the base by its form (shared/delta), of some or
//     all of its tensors.
//   - Any other file is the base's, byte for byte; one may be absent, but for config.json and adapter_config.json. In
//     config.json the dtype may be another that the trainer takes, and the text may be laid out otherwise. An
//     adapter's adapter_config.json has the base's rank, alpha and targets.
// kInvalidArgument names manifest.files[i].path, or the tensor that is missing. What is read is bounded by the base,
// whatever the update says. Call after check_blobs().
Status check_update(const store_client::Manifest& update, const store_client::Manifest& base, const BlobStore& blobs);

}  // namespace atl::store
