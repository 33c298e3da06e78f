#pragma once

#include <filesystem>

#include "shared/model_store/transfer.h"

// What `model verify` compares; an error names the file and the byte.
namespace atl::cli {

// Reads every chunk from the store and compares its digest: kInternal names the file and its first and last byte that
// do not match.
Status verify_stored(const model_store::Manifest& manifest, const model_store::TransferOptions& options);

// Compares a directory with the version: kInvalidArgument names the first byte that differs, for which the store's own
// bytes are fetched.
Status verify_copy(const std::filesystem::path& directory, const model_store::Manifest& manifest,
                   const model_store::TransferOptions& options);

}  // namespace atl::cli
