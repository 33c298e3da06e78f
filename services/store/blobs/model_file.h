#pragma once

#include <cstdint>
#include <string>

#include "services/store/blobs/blob_store.h"
#include "shared/base/result.h"
#include "shared/safetensors/file.h"
#include "shared/safetensors/safetensors.h"
#include "shared/store_client/manifest.h"

// Reading the files of a manifest: of what a version's checks need. Inside blobs/ only.
namespace atl::store {

inline constexpr const char* kIndexPath = "model.safetensors.index.json";

bool is_safetensors(const store_client::ManifestFile& file);

// The first `count` bytes of a file, over as many chunks as they take.
Result<std::string> read_front(const store_client::ManifestFile& file, std::uint64_t count, const BlobStore& blobs);

// The length of a safetensors file's header, without its 8 bytes of length. kInvalidArgument names the file.
Result<std::uint64_t> read_header_length(const store_client::ManifestFile& file, const BlobStore& blobs);
// Also refused before it is parsed: a header longer than its tensors can need (8 MiB and 200 bytes a tensor, 32 MiB at
// most); and more than 64 KiB of __metadata__.
Result<safetensors::Header> read_header(const store_client::ManifestFile& file, const BlobStore& blobs);

// Which file of the manifest its index (kIndexPath) says that each tensor is in. kInvalidArgument names the index: it
// is larger than bytes_max, is none that the trainer reads, or names a file that is not there.
Result<safetensors::WeightMap> read_index(const store_client::ManifestFile& index,
                                          const store_client::Manifest& manifest, std::uint64_t bytes_max,
                                          const BlobStore& blobs);

// What the checks of a version read of its files: the headers, as far as they are any, and the index. Call after
// check_blobs().
Result<std::uint64_t> head_bytes(const store_client::Manifest& manifest, const BlobStore& blobs);

Error wrong_file(const store_client::ManifestFile& file, const std::string& why);

}  // namespace atl::store
