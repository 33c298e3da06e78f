#pragma once

#include "services/store/blobs/blob_store.h"
#include "shared/adapter/adapter.h"
#include "shared/base/result.h"
#include "shared/store_client/manifest.h"

namespace atl::store {

// Every chunk's blob is there and has the chunk's size; kInvalidArgument names the first that is not.
Status check_blobs(const store_client::Manifest& manifest, const BlobStore& blobs);

// Every *.safetensors has a header that parses and agrees with the file's size, and model.safetensors.index.json names
// files of this manifest. kInvalidArgument names the file. Call after check_blobs().
Status check_model_files(const store_client::Manifest& manifest, const BlobStore& blobs);

// An update's tensors have the names and shapes of its parent's; floating types may differ. kInvalidArgument naming the
// tensor. Call after check_model_files() of both.
Status check_same_tensors(const store_client::Manifest& update, const store_client::Manifest& parent,
                          const BlobStore& blobs);

// A LoRA adapter in peft's layout that fits the model: adapter_config.json of plain LoRA, and in
// adapter_model.safetensors just the two factors of each matrix of the model that it targets. kInvalidArgument naming
// the file, key or tensor. Call after check_model_files() of both.
Status check_adapter(const store_client::Manifest& handed_in, const store_client::Manifest& model,
                     const BlobStore& blobs);
// The adapter's configuration; kInvalidArgument names the file.
Result<adapter::LoraOptions> read_adapter_config(const store_client::ManifestFile& file, const BlobStore& blobs);

}  // namespace atl::store
