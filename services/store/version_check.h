#pragma once

#include "services/store/blob_store.h"
#include "shared/base/result.h"
#include "shared/model_store/manifest.h"

namespace atl::store {

// Every chunk's blob is there and has the chunk's size; kInvalidArgument names the first that is not.
Status check_blobs(const model_store::Manifest& manifest, const BlobStore& blobs);

// Every *.safetensors has a header that parses and agrees with the file's size, and model.safetensors.index.json names
// files of this manifest. kInvalidArgument names the file. Call after check_blobs().
Status check_model_files(const model_store::Manifest& manifest, const BlobStore& blobs);

}  // namespace atl::store
